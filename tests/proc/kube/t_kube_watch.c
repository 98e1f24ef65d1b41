/* t_kube_watch.c - tests lists, watches and leases against the scripted API server and against a real one. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/kube/kube_lease.h"
#include "base/io/kube/kube_list.h"
#include "tests/proc/kube/kube_watched.h"

#include <stdio.h>

static struct kube_server *server; /* of the tests that run now */

static struct kube_world world(void)
{
    return kube_world_open(server, (struct kube_client_config){ 0 });
}

/* ---- lists ---- */

struct listed {
    uint32_t items, begins, ends, cancel_at;
    struct kube_list *list;
    int rc;
    char version[KUBE_VERSION_BYTES], problem[256];
    uint32_t count;
};

static void on_list_begin(void *arg)
{
    struct listed *l = arg;
    l->begins++;
    l->items = 0;
}

static void on_list_item(void *arg, struct str object)
{
    struct listed *l = arg;
    struct kube_meta meta;
    assert_int_equal(kube_meta_read(object, &meta, NULL), 0);
    if (++l->items == l->cancel_at) kube_list_cancel(TAKE(l->list));
}

static void on_list_end(void *arg, const struct kube_list_end *end)
{
    struct listed *l = arg;
    l->ends++;
    l->rc = end->rc;
    l->count = end->count;
    snprintf(l->version, sizeof l->version, "%s", end->version);
    snprintf(l->problem, sizeof l->problem, "%s", end->problem);
    l->list = NULL;
}

static void list_start(struct kube_world *w, struct listed *l, const char *labels, uint32_t limit)
{
    struct err err = { 0 };
    const struct kube_list_request req = { .resource = &kube_configmaps,
                                           .ns = STR(KUBE_RIG_NS),
                                           .label_selector = str_from(labels),
                                           .limit = limit,
                                           .on_begin = on_list_begin,
                                           .on_item = on_list_item,
                                           .on_end = on_list_end,
                                           .arg = l };
    if (kube_list_start(w->client, &req, &l->list, &err) < 0) fail_msg("%s", err.text);
}

static void a_list_comes_in_chunks(void **state)
{
    (void)state;
    struct kube_world w = world();
    char name[32];
    for (int i = 0; i < 25; i++) {
        snprintf(name, sizeof name, "chunk-%02d", i);
        kube_make_map(&w, name, "x");
    }
    for (uint32_t limit = 5; limit <= 100; limit += 95) {
        struct listed l = { 0 };
        struct kube_client_counts before, after;
        kube_client_counts_get(w.client, &before);
        list_start(&w, &l, "app=kube-rig", limit);
        KUBE_UNTIL(&w, l.ends == 1);
        kube_client_counts_get(w.client, &after);
        if (l.rc < 0) fail_msg("%s", l.problem);
        assert_int_equal(l.items, 25);
        assert_int_equal(l.count, 25);
        assert_int_equal(l.begins, 1);
        assert_true(l.version[0] != 0);
        uint64_t calls = after.by_verb[KUBE_LIST] - before.by_verb[KUBE_LIST];
        assert_int_equal(calls, limit == 5 ? 5 : 1);
    }
    struct listed none = { 0 }, some = { .cancel_at = 3 };
    list_start(&w, &none, "app=nothing", 5);
    KUBE_UNTIL(&w, none.ends == 1);
    assert_int_equal(none.items, 0);
    assert_true(none.version[0] != 0); /* an empty list has a version to watch from */
    list_start(&w, &some, "app=kube-rig", 100);
    KUBE_UNTIL(&w, some.items == 3);
    for (int i = 0; i < 20; i++)
        loop_turn(w.loop, 1000);
    assert_int_equal(some.items, 3);
    assert_int_equal(some.ends, 0);
    for (int i = 0; i < 25; i++) {
        snprintf(name, sizeof name, "chunk-%02d", i);
        kube_delete_map(&w, name);
    }
    kube_world_close(&w);
}

/* ---- watches ---- */

static void a_watch_tells_what_is_there_and_what_changes(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct kube_watched s = { 0 };
    kube_make_map(&w, "w-1", "1");
    kube_watched_start(&w, &s,
                       (struct kube_watch_request){ .label_selector = STR("app=kube-rig") });
    kube_watched_until(&w, &s, "+w-1 = ");
    kube_make_map(&w, "w-2", "1");
    kube_set_map(&w, "w-1", "2");
    kube_delete_map(&w, "w-2");
    kube_watched_until(&w, &s, "+w-1 = +w-2 ~w-1 -w-2 ");
    /* Out of the selection is gone, for this watcher. */
    kube_must(&w, (struct kube_request){
                      .verb = KUBE_PATCH,
                      .resource = &kube_configmaps,
                      .name = STR("w-1"),
                      .body = STR("{\"metadata\":{\"labels\":{\"app\":\"other\"}}}") });
    kube_watched_until(&w, &s, "+w-1 = +w-2 ~w-1 -w-2 -w-1 ");
    struct kube_watch_state st = kube_watched_state(&s);
    assert_true(st.synced && st.connected && st.confirmed_us > 0);
    assert_int_equal(st.lists, 1);
    assert_int_equal(st.watches, 1);
    assert_int_equal(st.objects, 0);
    assert_string_equal(st.problem, "");
    kube_watched_end(&s);
    kube_delete_map(&w, "w-1");
    kube_world_close(&w);
}

static void after_a_restart_the_watch_catches_up(void **state)
{
    (void)state;
    struct kube_world w = world(), second;
    struct kube_watched s = { 0 };
    kube_make_map(&w, "c-1", "1");
    kube_make_map(&w, "c-2", "1");
    kube_make_map(&w, "c-3", "1");
    kube_watched_start(&w, &s,
                       (struct kube_watch_request){ .label_selector = STR("app=kube-rig") });
    kube_watched_until(&w, &s, "+c-1 +c-2 +c-3 = ");
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    /* While this client does not run, the server forgets its history and objects change. */
    kube_rig_restart(server);
    second = kube_world_open(server, (struct kube_client_config){ 0 });
    kube_set_map(&second, "c-1", "2");
    kube_delete_map(&second, "c-2");
    kube_delete_map(&second, "c-3");
    kube_make_map(&second, "c-3", "1"); /* another object of the same name */
    kube_make_map(&second, "c-4", "1");
    kube_rig_restart(server);
    KUBE_UNTIL(&w, kube_watched_state(&s).lists == 2);
    kube_watched_until(&w, &s, "+c-1 +c-2 +c-3 = ~c-1 -c-3 +c-3 +c-4 -c-2 = ");
    assert_true(kube_watched_state(&s).expired > 0);
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    kube_delete_map(&second, "c-4");
    kube_watched_until(&w, &s, "+c-1 +c-2 +c-3 = ~c-1 -c-3 +c-3 +c-4 -c-2 = -c-4 ");
    kube_watched_end(&s);
    kube_delete_map(&second, "c-1");
    kube_delete_map(&second, "c-3");
    kube_world_close(&second);
    kube_world_close(&w);
}

static void a_watch_may_be_stopped_from_its_own_event(void **state)
{
    (void)state;
    struct kube_world w = world();
    kube_make_map(&w, "s-1", "1");
    kube_make_map(&w, "s-2", "1");
    for (uint32_t at = 1; at <= 5; at++) { /* in the list, at its end, in the stream */
        struct kube_watched s = { .stop_at = at };
        kube_watched_start(&w, &s,
                           (struct kube_watch_request){ .label_selector = STR("app=kube-rig") });
        if (at > 3) {
            KUBE_UNTIL(&w, s.events == 3);
            kube_set_map(&w, "s-1", at == 4 ? "4" : "5");
            kube_set_map(&w, "s-2", at == 4 ? "4" : "5");
        }
        KUBE_UNTIL(&w, s.events == at);
        for (int i = 0; i < 20; i++)
            loop_turn(w.loop, 1000);
        assert_int_equal(s.events, at);
        assert_null(s.watch);
        buf_fini(&s.log);
    }
    kube_delete_map(&w, "s-1");
    kube_delete_map(&w, "s-2");
    kube_world_close(&w);
}

/* A server that stands still and goes on costs neither a list nor an event twice. */
static void a_pause_of_the_server_is_bridged(void **state)
{
    (void)state;
    struct kube_world w = kube_world_open(server, (struct kube_client_config){ 0 });
    struct kube_watched s = { 0 };
    struct kube_seen seen = { 0 };
    kube_make_map(&w, "p-1", "1");
    kube_watched_start(&w, &s,
                       (struct kube_watch_request){ .label_selector = STR("app=kube-rig") });
    kube_watched_until(&w, &s, "+p-1 = ");
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    kube_rig_pause(server);
    const struct kube_request get = { .verb = KUBE_GET,
                                      .resource = &kube_configmaps,
                                      .name = STR("p-1") };
    struct kube_request late = get;
    late.deadline_us = clock_mono_us() + 500000;
    kube_do(&w, &seen, late);
    assert_int_equal(seen.reply.rc, -ETIMEDOUT);
    kube_go(&w, &seen, get); /* this one waits longer than the pause */
    int64_t until_us = clock_mono_us() + 500000;
    KUBE_UNTIL(&w, clock_mono_us() > until_us);
    assert_int_equal(seen.ends, 0);
    kube_rig_resume(server);
    KUBE_UNTIL(&w, seen.ends == 1);
    if (seen.reply.rc < 0) fail_msg("%s", seen.problem);
    kube_set_map(&w, "p-1", "2");
    kube_watched_until(&w, &s, "+p-1 = ~p-1 ");
    assert_int_equal(kube_watched_state(&s).lists, 1);
    kube_seen_fini(&seen);
    kube_watched_end(&s);
    kube_delete_map(&w, "p-1");
    kube_world_close(&w);
}

/* Everything again over HTTP/2, where the server speaks it: many calls at once and a watch on one connection. */
static void many_calls_at_once_over_http2(void **state)
{
    (void)state;
    struct kube_world w = kube_world_open(server, (struct kube_client_config){ .http2 = true });
    static struct kube_seen s[100];
    struct kube_watched watch = { 0 };
    kube_make_map(&w, "h-1", "1");
    kube_watched_start(&w, &watch,
                       (struct kube_watch_request){ .label_selector = STR("app=kube-rig") });
    kube_watched_until(&w, &watch, "+h-1 = ");
    KUBE_UNTIL(&w, kube_watched_state(&watch).connected);
    for (size_t i = 0; i < COUNT_OF(s); i++)
        kube_go(&w, &s[i],
                (struct kube_request){
                    .verb = KUBE_GET, .resource = &kube_configmaps, .name = STR("h-1") });
    for (size_t i = 0; i < COUNT_OF(s); i++) {
        KUBE_UNTIL(&w, s[i].ends == 1);
        if (s[i].reply.rc < 0) fail_msg("%s", s[i].problem);
        kube_seen_fini(&s[i]);
    }
    kube_set_map(&w, "h-1", "2");
    kube_watched_until(&w, &watch, "+h-1 = ~h-1 ");
    kube_watched_end(&watch);
    kube_delete_map(&w, "h-1");
    kube_world_close(&w);
}

/* ---- leases ---- */

struct candidate {
    struct kube_world world;
    struct kube_lease *lease;
    int begins, ends, released;
    int64_t epoch;
};

static void on_change(void *arg, bool leads, int64_t epoch)
{
    struct candidate *c = arg;
    *(leads ? &c->begins : &c->ends) += 1;
    c->epoch = epoch;
}

static void on_released(void *arg)
{
    ((struct candidate *)arg)->released++;
}

/* Short times, so that a takeover is a matter of seconds. */
static void candidate_open(struct candidate *c, const char *name)
{
    char identity[KUBE_HOLDER_BYTES];
    struct err err = { 0 };
    c->world = world();
    assert_int_equal(kube_lease_identity(str_from(name), identity, &err), 0);
    const struct kube_lease_request req = {
        .ns = STR(KUBE_RIG_NS),
        .name = STR("leader"),
        .identity = str_from(identity),
        .times = { .lease_us = 3000000, .renew_us = 2000000, .retry_us = 200000 },
        .on_change = on_change,
        .arg = c,
    };
    if (kube_lease_start(c->world.client, &req, &c->lease, &err) < 0) fail_msg("%s", err.text);
}

static void candidate_close(struct candidate *c)
{
    kube_lease_free(c->lease);
    kube_world_close(&c->world);
}

static void lease_make(struct kube_world *w)
{
    kube_must(
        w, (struct kube_request){
               .verb = KUBE_CREATE,
               .resource = &kube_leases,
               .body =
                   STR("{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":"
                       "{\"name\":\"leader\",\"labels\":{\"keep\":\"me\"}},\"spec\":{}}") });
}

static void turn_both(struct candidate *a, struct candidate *b)
{
    loop_turn(a->world.loop, 1000);
    loop_turn(b->world.loop, 1000);
    int64_t epoch;
    if (kube_lease_leads(a->lease, &epoch)) assert_false(kube_lease_leads(b->lease, &epoch));
}

static void leadership_goes_to_one_and_to_the_next(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct candidate a = { 0 }, b = { 0 };
    struct kube_seen s = { 0 };
    lease_make(&w);
    candidate_open(&a, "a");
    KUBE_UNTIL(&a.world, a.begins == 1);
    assert_int_equal(a.epoch, 1);
    candidate_open(&b, "b");
    struct kube_lease_state st;
    for (int i = 0; i < 300; i++) /* renewed, and watched by the other */
        turn_both(&a, &b);
    assert_int_equal(a.begins + a.ends + b.begins, 1);
    kube_lease_state_get(b.lease, &st);
    assert_false(st.leads);
    assert_int_equal(strncmp(st.holder, "a_", 2), 0);
    kube_do(
        &w, &s,
        (struct kube_request){ .verb = KUBE_GET, .resource = &kube_leases, .name = STR("leader") });
    assert_non_null(strstr(s.body.data, "\"keep\":\"me\"")); /* what others wrote stays */

    /* A stands still, as a paused process does: B waits, then leads in a later epoch. A knows at once when
     * it goes on, before it has asked anybody. */
    int64_t paused_us = clock_mono_us();
    KUBE_UNTIL(&b.world, b.begins == 1);
    assert_true(clock_mono_us() - paused_us >= 2800000); /* A's last renewal may be a retry old */
    assert_int_equal(b.epoch, 2);
    assert_false(kube_lease_leads(a.lease, NULL));
    while (a.ends == 0)
        turn_both(&a, &b);
    kube_lease_state_get(a.lease, &st);

    /* B gives up: A need not wait for the lease's end. */
    kube_lease_release(b.lease, on_released, &b);
    assert_false(kube_lease_leads(b.lease, NULL));
    KUBE_UNTIL(&b.world, b.released == 1);
    kube_do(
        &w, &s,
        (struct kube_request){ .verb = KUBE_GET, .resource = &kube_leases, .name = STR("leader") });
    assert_non_null(strstr(s.body.data, "\"holderIdentity\":\"\""));
    while (a.begins < 2)
        turn_both(&a, &b);
    assert_int_equal(a.epoch, 3);
    assert_int_equal(b.ends, 1);
    candidate_close(&a);
    candidate_close(&b);
    kube_seen_fini(&s);
    kube_expect(&w,
                (struct kube_request){
                    .verb = KUBE_DELETE, .resource = &kube_leases, .name = STR("leader") },
                0, "");
    kube_world_close(&w);
}

static void a_lease_that_is_not_there_is_made_and_leads_later(void **state)
{
    (void)state;
    struct kube_world w = world();
    struct candidate a = { 0 };
    candidate_open(&a, "a");
    int64_t begun_us = clock_mono_us();
    KUBE_UNTIL(&a.world, a.begins == 1);
    assert_true(clock_mono_us() - begun_us >= 3000000); /* lease_us: another may still believe */
    assert_true(a.epoch > 1000000);                     /* a date */
    kube_expect(&w,
                (struct kube_request){
                    .verb = KUBE_DELETE, .resource = &kube_leases, .name = STR("leader") },
                0, "");
    KUBE_UNTIL(&a.world, a.ends == 1); /* at the next renewal */
    candidate_close(&a);
    kube_expect(
        &w,
        (struct kube_request){ .verb = KUBE_GET, .resource = &kube_leases, .name = STR("leader") },
        -ENOENT, "NotFound");
    kube_world_close(&w);
}

static int run(struct kube_server *s)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_comes_in_chunks),
        cmocka_unit_test(a_watch_tells_what_is_there_and_what_changes),
        cmocka_unit_test(a_watch_may_be_stopped_from_its_own_event),
        cmocka_unit_test(a_pause_of_the_server_is_bridged),
        cmocka_unit_test(many_calls_at_once_over_http2),
        cmocka_unit_test(leadership_goes_to_one_and_to_the_next),
        cmocka_unit_test(a_lease_that_is_not_there_is_made_and_leads_later),
        cmocka_unit_test(after_a_restart_the_watch_catches_up),
    };
    server = s;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return kube_rig_both(run);
}
