/* t_store_kube.c - tests the store on Kubernetes objects: the cases of every backend against a scripted and a real
 * API server, then replies that are lost, a server that hangs, and objects that others delete, restore and label. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/kube/kube_config.h"
#include "base/io/loop/clock.h"
#include "base/io/store/store.h"
#include "tests/proc/kube/kube_rig.h"
#include "tests/unit/io/store_suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#define PATIENT_US 10000000 /* where no test waits for its end */
#define TIMEOUT_US 300000
#define SLACK_US 400000 /* of a busy machine, on top of a bound */
#define STARTS_US 20000000

static const struct kube_resource secrets = { "", "v1", "secrets", false };
static const char *const secret[] = { "tenant/", "keys" };
static struct kube_server fake, real, *server;
static int number; /* of the fleet in use: each test has one of its own */
static int64_t timeout_us = PATIENT_US;

static int open_at(const char *url, struct store **ret, struct err *err)
{
    char fleet[32];
    snprintf(fleet, sizeof fleet, "fleet-%d", number);
    const struct store_kube_config config = { .url = str_from(url),
                                              .fleet = str_from(fleet),
                                              .kubeconfig = str_from(server->kubeconfig),
                                              .secret = secret,
                                              .secret_count = COUNT_OF(secret),
                                              .timeout_us = timeout_us };
    return store_kube_open(&config, ret, err);
}

static struct store *open_again(void)
{
    struct store *s = NULL;
    struct err err = { 0 };
    if (open_at("kubernetes", &s, &err) < 0) fail_msg("%s", err.text);
    return s;
}

/* An empty store, of another fleet than the last one. */
static struct store *open_new(void)
{
    number++;
    return open_again();
}

static struct store *join(struct store *first)
{
    (void)first;
    return open_again();
}

/* Takes the lease as soon as the server can be reached again. */
static void lead_again(struct store *s)
{
    suite_lead_again(s, STARTS_US);
}

static struct str named(const char *what)
{
    static char name[4][64];
    static int at;
    at = (at + 1) % 4;
    snprintf(name[at], sizeof name[at], "fleet-%d-store%s", number, what);
    return str_from(name[at]);
}

/* Makes a call on an object of the store, past the store. */
static void other_call(enum kube_verb verb, const struct kube_resource *r, struct str name,
                       struct str body, struct buf *ret)
{
    struct kube_world w = kube_world_open(server, (struct kube_client_config){ 0 });
    struct kube_seen seen = { 0 };
    kube_do(&w, &seen,
            (struct kube_request){
                .verb = verb, .resource = r, .ns = STR(KUBE_RIG_NS), .name = name, .body = body });
    if (seen.reply.rc < 0) fail_msg("%s", seen.problem);
    if (ret) buf_str(ret, buf_view(&seen.body));
    kube_seen_fini(&seen);
    kube_world_close(&w);
}

static void script(const char *verb, const char *fault, int count)
{
    char text[128];
    snprintf(text, sizeof text, "{\"verb\":\"%s\",\"fault\":\"%s\",\"count\":%d}", verb, fault,
             count);
    kube_rig_post(&fake, "/script", text);
}

/* ---- the cases of every backend ---- */

static void it_answers_as_the_others_do(void **state)
{
    (void)state;
    suite_run(open_new);
    suite_share(open_new, join);
}

static void it_does_so_on_a_real_server(void **state)
{
    (void)state;
    if (!kube_rig_real(&real)) skip();
    server = &real;
    suite_run(open_new);
    suite_share(open_new, join);
}

static void random_operations_agree_with_memory(void **state)
{
    (void)state;
    struct store *s = open_new(), *memory;
    assert_int_equal(store_memory_open(100, &memory, NULL), 0);
    suite_lead(s, "a");
    suite_random(s, memory, 1000);
    struct store *other = join(s);
    suite_same(s, memory);     /* what the leader knows */
    suite_same(other, memory); /* what another handle reads */
    store_close(s);
    store_close(memory);
    store_close(other);
}

/* A long history keeps its bound by dropping whole segments, and numbers go on. */
static void a_long_log_is_bounded_by_bytes(void **state)
{
    (void)state;
    static const struct store_log log = { "log", 100000 };
    struct store *s = open_new(), *b;
    struct store_log_stat stat, other;
    char text[8192];
    uint64_t seq = 0;
    memset(text, 'd', sizeof text);
    suite_lead(s, "a");
    for (int i = 0; i < 100; i++)
        assert_int_equal(store_append(s, &log, str_of(text, sizeof text), &seq, NULL), 0);
    assert_int_equal(seq, 100);
    assert_int_equal(store_log_stat(s, &log, &stat, NULL), 0);
    assert_true(stat.count >= 32 && stat.count <= 48);
    assert_int_equal(stat.first + stat.count, 101);
    assert_int_equal(stat.dropped, stat.first - 1);
    b = join(s);
    assert_int_equal(store_log_stat(b, &log, &other, NULL), 0);
    assert_memory_equal(&stat, &other, sizeof stat);
    store_close(b);
    store_close(s);
}

/* A value that grows beyond its object moves, and one of several parts is read whole by another handle. */
static void values_move_between_objects(void **state)
{
    (void)state;
    static char big[2][700 << 10];
    struct store *s = open_new(), *b;
    CLEANUP(buf_fini) struct buf out = { 0 };
    uint64_t version = 0;
    memset(big[0], 'a', sizeof big[0]);
    memset(big[1], 'b', sizeof big[1]);
    suite_lead(s, "a");
    assert_int_equal(store_put_if(s, STR("k"), STR("small"), STORE_ABSENT, &version, NULL), 0);
    assert_int_equal(
        store_put_if(s, STR("k"), str_of(big[0], sizeof big[0]), version, &version, NULL), 0);
    assert_int_equal(
        store_put_if(s, STR("k"), str_of(big[1], sizeof big[1]), version, &version, NULL), 0);
    b = join(s);
    assert_value(b, STR("k"), str_of(big[1], sizeof big[1]), version);
    assert_int_equal(store_put_if(s, STR("k"), STR("small"), version, &version, NULL), 0);
    assert_value(b, STR("k"), STR("small"), version);
    assert_int_equal(store_delete_if(s, STR("k"), version, NULL), 0);
    assert_int_equal(store_get(b, STR("k"), NULL, NULL, NULL), -ENOENT);
    assert_int_equal(store_list(b, STR(""), keep_key, &out, NULL), 0);
    assert_int_equal(out.len, 0);
    store_close(b);
    store_close(s);
}

static void secrets_are_in_secrets(void **state)
{
    (void)state;
    struct store *s = open_new();
    CLEANUP(buf_fini) struct buf maps = { 0 }, kept = { 0 };
    suite_lead(s, "a");
    assert_int_equal(store_put_if(s, STR("tenant/x"), STR("hush"), STORE_ABSENT, NULL, NULL), 0);
    assert_int_equal(store_put_if(s, STR("cost"), STR("loud"), STORE_ABSENT, NULL, NULL), 0);
    for (int i = 0; i < 36; i++) {
        char what[16];
        snprintf(what, sizeof what, "-%c%d", i < 32 ? 'r' : 's', i < 32 ? i : i - 32);
        other_call(KUBE_GET, i < 32 ? &kube_configmaps : &secrets, named(what), (struct str){ 0 },
                   i < 32 ? &maps : &kept);
    }
    assert_non_null(strstr(maps.data, "4:costloud"));
    assert_null(strstr(maps.data, "tenant"));
    assert_non_null(strstr(kept.data, "ODp0ZW5hbnQveGh1c2g=")); /* 8:tenant/xhush */
    store_close(s);
}

/* ---- take-overs ---- */

#define WRITES_MAX 4000

/* An old leader that does not know yet that it is one. */
struct old_leader {
    struct store *store;
    atomic_uint written; /* keys w/0 .. written - 1 are stored, as it was told */
    int rc;
};

static void *write_on(void *arg)
{
    struct old_leader *o = arg;
    struct err err = { 0 };
    for (uint32_t i = 0; i < WRITES_MAX && o->rc == 0; i++) {
        char key[16];
        snprintf(key, sizeof key, "w/%u", i);
        o->rc = store_put_if(o->store, str_from(key), STR("v"), STORE_ABSENT, NULL, &err);
        if (o->rc == 0) atomic_store(&o->written, i + 1);
    }
    return NULL;
}

/* One leader writes while another takes over: what the first was told is stored is there, and nothing else. */
static void take_over_once(uint32_t after)
{
    struct old_leader o = { .store = open_new() };
    struct store *b = join(o.store), *c = join(b);
    pthread_t thread;
    suite_lead(o.store, "a");
    assert_int_equal(pthread_create(&thread, NULL, write_on, &o), 0);
    while (atomic_load(&o.written) < after)
        usleep(200);
    lead_again(b); /* on a busy machine the old one's writes outrun a try */
    assert_int_equal(store_put_if(b, STR("new"), STR("v"), STORE_ABSENT, NULL, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_equal(o.rc, -EKEYREVOKED);
    assert_int_equal(suite_count(b, STR("w/")), atomic_load(&o.written));
    assert_int_equal(suite_count(c, STR("w/")), atomic_load(&o.written));
    store_close(o.store);
    store_close(b);
    store_close(c);
}

static void writes_during_a_take_over_are_kept_or_refused(void **state)
{
    (void)state;
    for (uint32_t i = 1; i <= 20; i++)
        take_over_once(5 * i);
    if (!real.api.proc.id.pid) return;
    server = &real;
    for (uint32_t i = 1; i <= 5; i++)
        take_over_once(10 * i);
}

/* ---- replies that are lost, and a server that is away ---- */

static void a_lost_reply_ends_the_term_and_nothing_is_lost(void **state)
{
    (void)state;
    struct store *s = open_new(), *b = join(s);
    struct err err = { 0 };
    uint64_t version = 0;
    suite_lead(s, "a");
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    script("patch", "lost", 1); /* the client tries a patch again: it meets its own first try */
    assert_int_equal(store_put_if(s, STR("k"), STR("2"), STORE_ANY, NULL, &err), -EREMOTEIO);
    assert_int_equal(store_epoch(s), 0);
    lead_again(b);
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(store_get(b, STR("k"), &out, &version, NULL), 0);
    assert_string_equal(out.data, "2");
    assert_true(version > 1);
    assert_int_equal(store_put_if(s, STR("k"), STR("3"), STORE_ANY, NULL, &err), -EKEYREVOKED);
    store_close(b);
    store_close(s);
}

static void a_renewal_whose_reply_is_lost_costs_nothing(void **state)
{
    (void)state;
    struct store *s = open_new();
    struct err err = { 0 };
    suite_lead(s, "a");
    script("patch", "lost", 1);
    int rc = store_lease_renew(s, &err);
    if (rc != 0 && rc != -EREMOTEIO) fail_msg("%d %s", rc, err.text);
    assert_int_equal(store_lease_renew(s, &err), 0);
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    store_close(s);
}

static void a_server_that_hangs_costs_the_bound_and_then_nothing(void **state)
{
    (void)state;
    timeout_us = TIMEOUT_US;
    struct store *s = open_new();
    struct err err = { 0 };
    lead_again(s);
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    kube_rig_pause(&fake);
    int64_t began = clock_mono_us(), longest = 0;
    uint32_t calls = 0, at_once = 0;
    while (clock_mono_us() - began < 4000000) {
        int64_t before = clock_mono_us();
        struct store_lease seen;
        int rc = store_lease_see(s, &seen, &err);
        int64_t took = clock_mono_us() - before;
        if (rc != -ETIMEDOUT && rc != -ENETDOWN) fail_msg("%d %s", rc, err.text);
        longest = max_i64(longest, took);
        calls++;
        at_once += took < 5000;
        usleep(10000);
    }
    print_message("%u calls, %u at once, the longest took %d ms\n", calls, at_once,
                  (int)(longest / 1000));
    assert_true(longest <= TIMEOUT_US + SLACK_US);
    assert_true(at_once > calls / 2);
    assert_false(store_is_reached(s));
    kube_rig_resume(&fake);
    int rc = -1;
    for (int64_t until = clock_mono_us() + STARTS_US; rc < 0 && clock_mono_us() < until;
         usleep(20000))
        rc = store_lease_renew(s, &err);
    if (rc < 0) fail_msg("%d %s", rc, err.text); /* nobody took the lease: the term goes on */
    assert_int_equal(store_put_if(s, STR("k"), STR("2"), STORE_ANY, NULL, &err), 0);
    assert_true(store_is_reached(s));
    store_close(s);
}

/* ---- what others do to the objects ---- */

static void everything_is_deleted_and_the_leader_writes_it_anew(void **state)
{
    (void)state;
    struct store *s = open_new();
    uint64_t version = 0;
    struct err err = { 0 };
    suite_lead(s, "a");
    suite_fill(s, &version);
    kube_rig_post(&fake, "/restart", "{\"empty\":true}");
    assert_int_equal(store_put_if(s, STR("x"), STR("v"), STORE_ANY, NULL, &err), -EKEYREVOKED);
    assert_int_equal(store_epoch(s), 0);
    lead_again(s);
    suite_assert_whole(s, version);
    struct store *b = join(s); /* and it is stored, not only known */
    store_close(s);
    assert_int_equal(suite_count(b, STR("k/")), 100);
    store_close(b);
}

static void one_that_stood_by_writes_what_was_deleted_anew(void **state)
{
    (void)state;
    struct store *a = open_new(), *b = join(a), *c = join(a);
    uint64_t version = 0;
    struct err err = { 0 };
    struct store_lease seen;
    suite_lead(a, "a");
    suite_fill(a, &version);
    assert_int_equal(store_lease_renew(a, NULL), 0); /* says how often each object was written */
    assert_int_equal(store_lease_see(b, &seen, NULL), 0);
    assert_int_equal(store_refresh(b, NULL), 0);
    store_close(a); /* it dies: nothing is given back */
    for (int i = 0; i < 32; i += 5) {
        char what[16];
        snprintf(what, sizeof what, "-r%d", i);
        other_call(KUBE_DELETE, &kube_configmaps, named(what), (struct str){ 0 }, NULL);
    }
    /* One without a copy does not take the rest for the whole. */
    const struct store_claim claim = { STR("c"), STR(""), 10000000, 0 };
    assert_int_equal(store_lease_see(c, &seen, NULL), 0);
    assert_int_equal(store_lease_acquire(c, &claim, &seen, NULL, &err), -EILSEQ);
    assert_non_null(strstr(err.text, "-store-r0 is gone"));
    assert_int_equal(store_epoch(c), 0);
    lead_again(b);
    suite_assert_whole(b, version);
    store_close(c);
    store_close(b);
}

static void an_older_object_is_no_new_one(void **state)
{
    (void)state;
    struct store *s = open_new();
    CLEANUP(buf_fini) struct buf old = { 0 };
    struct err err = { 0 };
    suite_lead(s, "a");
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    other_call(KUBE_GET, &kube_configmaps, named("-r0"), (struct str){ 0 }, &old);
    assert_non_null(strstr(old.data, "1:k1"));
    assert_int_equal(store_put_if(s, STR("k"), STR("2"), STORE_ANY, NULL, NULL), 0);
    /* A backup is put back. */
    other_call(KUBE_DELETE, &kube_configmaps, named("-r0"), (struct str){ 0 }, NULL);
    other_call(KUBE_CREATE, &kube_configmaps, named("-r0"), buf_view(&old), NULL);
    assert_int_equal(store_put_if(s, STR("k"), STR("3"), STORE_ANY, NULL, &err), -EKEYREVOKED);
    lead_again(s);
    struct store *b = join(s);
    CLEANUP(buf_fini) struct buf out = { 0 };
    assert_int_equal(store_get(b, STR("k"), &out, NULL, NULL), 0);
    assert_string_equal(out.data, "2");
    store_close(b);
    store_close(s);
}

static void labels_of_others_stay_and_end_no_term(void **state)
{
    (void)state;
    struct store *s = open_new();
    CLEANUP(buf_fini) struct buf map = { 0 };
    const struct str label = STR("{\"metadata\":{\"labels\":{\"helm\":\"other\"}}}");
    suite_lead(s, "a");
    uint64_t epoch = store_epoch(s);
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    other_call(KUBE_PATCH, &kube_configmaps, named("-r0"), label, NULL);
    other_call(KUBE_PATCH, &kube_leases, named(""), label, NULL);
    assert_int_equal(store_put_if(s, STR("k"), STR("2"), STORE_ANY, NULL, NULL), 0);
    assert_int_equal(store_lease_renew(s, NULL), 0);
    assert_int_equal(store_epoch(s), epoch);
    other_call(KUBE_GET, &kube_configmaps, named("-r0"), (struct str){ 0 }, &map);
    assert_non_null(strstr(map.data, "\"helm\":\"other\""));
    store_close(s);
}

/* As the chart makes them: without a holder, and empty. */
static void objects_that_were_made_before_are_taken(void **state)
{
    (void)state;
    struct store *s = open_new();
    char text[256];
    struct err err = { 0 };
    struct store_lease seen;
    snprintf(text, sizeof text,
             "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":"
             "{\"name\":\"fleet-%d-store\"},\"spec\":{}}",
             number);
    other_call(KUBE_CREATE, &kube_leases, named(""), str_from(text), NULL);
    snprintf(text, sizeof text,
             "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":"
             "{\"name\":\"fleet-%d-store-r0\"}}",
             number);
    other_call(KUBE_CREATE, &kube_configmaps, named("-r0"), str_from(text), NULL);
    suite_lead(s, "a");
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    store_close(s);
    /* A Lease of another program is left alone. */
    s = open_new();
    snprintf(text, sizeof text,
             "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":"
             "{\"name\":\"fleet-%d-store\"},\"spec\":{\"holderIdentity\":\"someone\"}}",
             number);
    other_call(KUBE_CREATE, &kube_leases, named(""), str_from(text), NULL);
    assert_int_equal(store_lease_see(s, &seen, &err), -EILSEQ);
    assert_non_null(strstr(err.text, "belongs to another program"));
    store_close(s);
}

/* Some objects of a new store were made, then the leader was stopped: the rest is made, not missed. */
static void a_first_term_that_broke_off_is_no_lost_store(void **state)
{
    (void)state;
    struct store *s = open_new(), *b = join(s);
    const struct store_claim claim = { STR("a"), STR(""), 10000000, 0 };
    struct store_lease seen;
    struct err err = { 0 };
    kube_rig_post(&fake, "/script",
                  "{\"verb\":\"create\",\"fault\":\"status\",\"count\":4,\"code\":403,"
                  "\"resource\":\"secrets\"}");
    assert_int_equal(store_lease_see(s, &seen, NULL), 0);
    assert_int_equal(store_lease_acquire(s, &claim, &seen, NULL, &err), -EPERM);
    assert_non_null(strstr(err.text, "create secrets"));
    store_close(s);
    lead_again(b);
    assert_int_equal(store_put_if(b, STR("tenant/a"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    store_close(b);
}

/* ---- names, and what it costs ---- */

static void bad_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *url, *says;
    } rows[] = { { "kubernetes:/x", "want kubernetes, or kubernetes://" },
                 { "kubernetes://", "no namespace" },
                 { "kubernetes://ns/Big", "cannot begin names" },
                 { "kubernetes://ns/", "cannot begin names" },
                 { "kubernetes://ns/-a", "cannot begin names" } };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct store *s = NULL;
        struct err err = { 0 };
        assert_int_equal(open_at(rows[i].url, &s, &err), -EINVAL);
        if (!strstr(err.text, rows[i].says)) fail_msg("%s: %s", rows[i].url, err.text);
    }
    struct store *s = NULL;
    assert_int_equal(open_at("kubernetes://elsewhere/name", &s, NULL), 0);
    store_close(s);
}

static int64_t calls(void)
{
    static const char *const verbs[] = { "get", "create", "patch", "replace", "list", "watch" };
    int64_t sum = 0;
    for (size_t i = 0; i < COUNT_OF(verbs); i++)
        sum += kube_rig_seen(&fake, verbs[i]);
    return sum;
}

static void calls_are_counted(void **state)
{
    (void)state;
    struct store *s = open_new(), *b = join(s);
    struct store_lease seen;
    int64_t at[8];
    at[0] = calls();
    suite_lead(s, "a");
    at[1] = calls();
    assert_int_equal(store_lease_renew(s, NULL), 0);
    at[2] = calls();
    assert_int_equal(store_put_if(s, STR("k"), STR("1"), STORE_ABSENT, NULL, NULL), 0);
    assert_int_equal(store_append(s, &suite_log, STR("d"), NULL, NULL), 0);
    at[3] = calls();
    assert_int_equal(store_get(s, STR("k"), NULL, NULL, NULL), 0);
    at[4] = calls();
    assert_int_equal(store_lease_renew(s, NULL), 0);
    at[5] = calls();
    assert_int_equal(store_lease_see(b, &seen, NULL), 0);
    assert_int_equal(store_refresh(b, NULL), 0);
    at[6] = calls();
    assert_int_equal(store_lease_see(b, &seen, NULL), 0);
    assert_int_equal(store_refresh(b, NULL), 0); /* nothing was written since */
    at[7] = calls();
    print_message("calls: first term %d, renewal %d, a put and an append %d, a read %d, first look "
                  "of another %d, look at rest %d\n",
                  (int)(at[1] - at[0]), (int)(at[2] - at[1]), (int)(at[3] - at[2]),
                  (int)(at[4] - at[3]), (int)(at[6] - at[5]), (int)(at[7] - at[6]));
    assert_int_equal(at[1] - at[0], 5 + 2 * 48);
    assert_int_equal(at[2] - at[1], 1);
    assert_int_equal(at[3] - at[2], 2);
    assert_int_equal(at[4] - at[3], 0);
    assert_int_equal(at[6] - at[5], 1 + 48);
    assert_int_equal(at[7] - at[6], 1);
    store_close(b);
    store_close(s);
}

static int teardown(void **state)
{
    (void)state;
    kube_rig_end(&fake);
    kube_rig_end(&real);
    return 0;
}

static int back_to_fake(void **state)
{
    (void)state;
    server = &fake;
    timeout_us = PATIENT_US;
    return 0;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    if (!kube_rig_fake(&fake, ARGS(NULL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_answers_as_the_others_do, back_to_fake),
        cmocka_unit_test_setup(it_does_so_on_a_real_server, back_to_fake),
        cmocka_unit_test_setup(writes_during_a_take_over_are_kept_or_refused, back_to_fake),
        cmocka_unit_test_setup(random_operations_agree_with_memory, back_to_fake),
        cmocka_unit_test_setup(a_long_log_is_bounded_by_bytes, back_to_fake),
        cmocka_unit_test_setup(values_move_between_objects, back_to_fake),
        cmocka_unit_test_setup(secrets_are_in_secrets, back_to_fake),
        cmocka_unit_test_setup(a_lost_reply_ends_the_term_and_nothing_is_lost, back_to_fake),
        cmocka_unit_test_setup(a_renewal_whose_reply_is_lost_costs_nothing, back_to_fake),
        cmocka_unit_test_setup(a_server_that_hangs_costs_the_bound_and_then_nothing, back_to_fake),
        cmocka_unit_test_setup(one_that_stood_by_writes_what_was_deleted_anew, back_to_fake),
        cmocka_unit_test_setup(an_older_object_is_no_new_one, back_to_fake),
        cmocka_unit_test_setup(labels_of_others_stay_and_end_no_term, back_to_fake),
        cmocka_unit_test_setup(objects_that_were_made_before_are_taken, back_to_fake),
        cmocka_unit_test_setup(a_first_term_that_broke_off_is_no_lost_store, back_to_fake),
        cmocka_unit_test_setup(bad_names_are_refused, back_to_fake),
        cmocka_unit_test_setup(calls_are_counted, back_to_fake),
        cmocka_unit_test_setup(everything_is_deleted_and_the_leader_writes_it_anew, back_to_fake),
    };
    return rig_end(cmocka_run_group_tests(tests, NULL, teardown));
}
