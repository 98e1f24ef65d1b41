/* t_cloud_local.c - tests the local machine as a cloud, with real processes for agents, and a
 * controller over it that is killed at every step. */
#include "base/core/bits.h"
#include "base/io/file.h"
#include "base/io/loop/clock.h"
#include "base/io/proc.h"
#include "controller/cloud/cloud_local.h"
#include "controller/control.h"
#include "tests/unit/controller/killed_cloud.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECOND ((int64_t)1000000)
#define START (1000000 * SECOND)
#define WAIT_US 60000000 /* limit for what takes processes milliseconds */

static const char *program; /* fake_agent, in our folder */

struct ground {
    char folder[64];
    void *local;
    int64_t now;
};

static void open_cloud(struct ground *g, const char *mode, double cores)
{
    const char *agent[] = { program, mode, NULL };
    static const struct local_offer offers[] = {
        { .name = { "small", 5 }, .share = 0.2, .price_h = 1, .launch_us = 2 * SECOND },
        { .name = { "large", 5 }, .share = 0.5, .price_h = 2 },
    };
    struct local_config config = { .folder = g->folder,
                                   .agent = agent,
                                   .machine_share = cores,
                                   .offer = offers,
                                   .offer_count = 2 };
    struct err err;
    if (cloud_local_open(&config, &g->local, &err) < 0) fail_msg("%s", err.text);
}

static struct ground *ground(const char *mode, double cores)
{
    struct ground *g = calloc(1, sizeof *g);
    must(g);
    snprintf(g->folder, sizeof g->folder, "/tmp/t_cloud_local_XXXXXX");
    must(mkdtemp(g->folder));
    g->now = START;
    open_cloud(g, mode, cores);
    return g;
}

static uint32_t list(struct ground *g, struct listed *ret)
{
    uint32_t count = 0;
    struct err err;
    if (cloud_local_backend.list(g->local, g->now, ret, 32, &count, &err) < 0)
        fail_msg("%s", err.text);
    return count;
}

static void remove_all(struct ground *g)
{
    struct listed item[32];
    int64_t until = WAIT_US / 10000;
    for (uint32_t n; (n = list(g, item)) > 0 && until > 0; until--) {
        for (uint32_t i = 0; i < n; i++)
            cloud_local_backend.remove(g->local, item[i].handle, item[i].intent, g->now, NULL);
        g->now += SECOND;
        usleep(10000);
    }
    assert_true(until > 0);
}

static void ground_free(struct ground *g)
{
    remove_all(g);
    cloud_local_backend.close(g->local);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", g->folder);
    assert_int_equal(system(command), 0);
    free(g);
}

static int create(struct ground *g, const char *intent, const char *offer, struct listed *ret,
                  enum offer_error *class)
{
    struct offer o = { 0 };
    snprintf(o.name, sizeof o.name, "%s", offer);
    static const struct str args[] = { { "engine", 6 } };
    struct launch_spec spec = { .instance = str_from(intent),
                                .service = STR("chat"),
                                .pool = STR("small"),
                                .offer = str_from(offer),
                                .controller_host = STR("127.0.0.1"),
                                .controller_port = 1,
                                .engine_host = STR("127.0.0.1"),
                                .engine_args = args,
                                .engine_arg_count = 1 };
    struct cloud_request req = { .intent = intent, .offer = &o, .spec = &spec };
    struct err err;
    return cloud_local_backend.create(g->local, &req, g->now, ret, class, &err);
}

static struct proc_id process(const struct ground *g, const char *intent, const char *file)
{
    char path[256];
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct proc_id id = { 0 };
    snprintf(path, sizeof path, "%s/%s/%s", g->folder, intent, file);
    if (file_read(path, 256, &text, NULL) < 0) return id;
    struct str rest = buf_view(&text);
    if (proc_id_parse(str_trim(str_cut(&rest, '\n')), &id) < 0 || !proc_is_alive(&id))
        return (struct proc_id){ 0 };
    return id;
}

/* Waits until agent and engine are there; returns the engine. */
static struct proc_id wait_up(struct ground *g, const char *intent)
{
    for (int i = 0; i < WAIT_US / 5000; i++) {
        struct proc_id engine = process(g, intent, "engine.id");
        if (engine.pid && process(g, intent, "agent.lock").pid) return engine;
        usleep(5000);
    }
    fail_msg("%s did not come up", intent);
    return (struct proc_id){ 0 };
}

static void wait_dead(const struct proc_id *id)
{
    for (int i = 0; i < WAIT_US / 5000 && proc_is_alive(id); i++)
        usleep(5000);
    assert_false(proc_is_alive(id));
}

static void end(const struct proc_id *id)
{
    assert_true(id->pid > 0);
    proc_signal(id, SIGKILL, NULL);
    wait_dead(id);
}

static void one_intent_is_one_instance(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    struct listed made, again, item[32];
    enum offer_error class;
    assert_int_equal(create(g, "i-1", "small", &made, &class), 0);
    assert_string_equal(made.handle, "i-1");
    struct proc_id engine = wait_up(g, "i-1"), agent = process(g, "i-1", "agent.lock");
    assert_int_equal(create(g, "i-1", "small", &again, &class), 0);
    struct proc_id same = process(g, "i-1", "agent.lock");
    assert_true(proc_id_eq(&agent, &same));
    assert_int_equal(list(g, item), 1);
    assert_string_equal(item[0].intent, "i-1");
    assert_string_equal(item[0].service, "chat");
    assert_string_equal(item[0].offer, "small");
    assert_false(item[0].gone);
    (void)engine;

    /* The document records the launch delay. */
    char path[256];
    CLEANUP(buf_fini) struct buf text = { 0 };
    snprintf(path, sizeof path, "%s/i-1/spec.json", g->folder);
    assert_int_equal(file_read(path, LAUNCH_BYTES_MAX, &text, NULL), 0);
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, 2 * LAUNCH_BYTES_MAX);
    struct launch_spec spec;
    assert_int_equal(launch_spec_decode(buf_view(&text), &arena, &spec, NULL), 0);
    assert_int_equal(spec.created_us, START);
    assert_int_equal(spec.boot, proc_id_self().boot);
    assert_int_equal(spec.start_mono_us - spec.born_mono_us, 2 * SECOND);
    assert_true(spec.born_mono_us <= clock_mono_us());
    assert_int_equal(item[0].created_us, START);
    ground_free(g);
}

/* A folder with an unreadable document hides no other and blocks no create. */
static void an_unreadable_document_is_listed_and_left(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 0.6);
    char path[256];
    struct listed made, item[32];
    enum offer_error class;
    snprintf(path, sizeof path, "%s/i-000000000bad", g->folder);
    assert_int_equal(file_make_folders(path, 0700, NULL), 0);
    snprintf(path, sizeof path, "%s/i-000000000bad/spec.json", g->folder);
    assert_int_equal(file_write_atomic(path, STR("{\"v\":2}"), 0600, NULL), 0);
    for (int i = 0; i < 3; i++) { /* fills 0.6 of a core: the bad folder takes no share */
        char id[16];
        snprintf(id, sizeof id, "i-%d", i);
        assert_int_equal(create(g, id, "small", &made, &class), 0);
        wait_up(g, id);
    }
    uint32_t unreadable = 0, count = list(g, item);
    assert_int_equal(count, 4);
    for (uint32_t i = 0; i < count; i++) {
        bool bad = strcmp(item[i].intent, "i-000000000bad") == 0;
        assert_int_equal(item[i].unreadable, bad);
        assert_false(item[i].gone);
        unreadable += bad;
    }
    assert_int_equal(unreadable, 1);
    assert_int_equal(access(path, F_OK), 0);

    /* A running instance with an unreadable document counts as the largest offer. */
    struct proc_id agent = process(g, "i-2", "agent.lock");
    snprintf(path, sizeof path, "%s/i-2/spec.json", g->folder);
    assert_int_equal(file_write_atomic(path, STR("{"), 0600, NULL), 0);
    assert_int_equal(list(g, item), 4);
    assert_true(proc_is_alive(&agent));
    assert_true(create(g, "i-9", "small", &made, &class) < 0);
    assert_int_equal(class, OFFER_CAPACITY);
    ground_free(g);
}

static void refusals(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 0.6);
    struct listed made;
    enum offer_error class;
    assert_true(create(g, "i-1", "tiny", &made, &class) < 0);
    assert_int_equal(class, OFFER_INVALID);
    assert_true(create(g, "../x", "small", &made, &class) < 0);
    assert_int_equal(class, OFFER_INVALID);
    assert_int_equal(create(g, "i-1", "large", &made, &class), 0);
    assert_true(create(g, "i-2", "small", &made, &class) < 0);
    assert_int_equal(class, OFFER_CAPACITY);
    wait_up(g, "i-1");
    remove_all(g); /* the share is free again */
    assert_int_equal(create(g, "i-2", "small", &made, &class), 0);
    wait_up(g, "i-2");
    ground_free(g);
}

static void a_dead_agent_comes_back_to_its_engine(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    struct listed made, item[32];
    enum offer_error class;
    assert_int_equal(create(g, "i-1", "small", &made, &class), 0);
    struct proc_id engine = wait_up(g, "i-1"), agent = process(g, "i-1", "agent.lock");
    end(&agent);
    assert_true(proc_is_alive(&engine)); /* the engine survives */
    g->now += LOCAL_SPAWN_US;
    assert_int_equal(list(g, item), 1);
    assert_false(item[0].gone);
    struct proc_id after = wait_up(g, "i-1"), second = process(g, "i-1", "agent.lock");
    assert_true(proc_id_eq(&engine, &after));
    assert_false(proc_id_eq(&agent, &second));
    ground_free(g);
}

static void with_both_dead_it_is_gone(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    struct listed made, item[32];
    enum offer_error class;
    assert_int_equal(create(g, "i-1", "small", &made, &class), 0);
    struct proc_id engine = wait_up(g, "i-1"), agent = process(g, "i-1", "agent.lock");
    end(&agent);
    end(&engine);
    g->now += LOCAL_SPAWN_US;
    assert_int_equal(list(g, item), 1);
    assert_true(item[0].gone);
    assert_int_equal(process(g, "i-1", "agent.lock").pid, 0); /* no agent was started */
    assert_int_equal(cloud_local_backend.remove(g->local, "i-1", "i-1", g->now, NULL), 0);
    assert_int_equal(list(g, item), 0);
    assert_int_equal(cloud_local_backend.remove(g->local, "i-1", "i-1", g->now, NULL), 0);
    ground_free(g);
}

static void remove_without_an_agent_ends_the_engine(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    struct listed made, item[32];
    enum offer_error class;
    assert_int_equal(create(g, "i-1", "small", &made, &class), 0);
    struct proc_id engine = wait_up(g, "i-1"), agent = process(g, "i-1", "agent.lock");
    end(&agent);
    assert_int_equal(cloud_local_backend.remove(g->local, "", "i-1", g->now, NULL), 0);
    wait_dead(&engine);
    assert_int_equal(list(g, item), 0);
    ground_free(g);
}

static void an_agent_that_never_comes_is_started_again(void **state)
{
    (void)state;
    struct ground *g = ground("shy", 1);
    struct listed made, item[32];
    enum offer_error class;
    assert_int_equal(create(g, "i-1", "small", &made, &class), 0);
    cloud_local_backend.close(g->local);
    open_cloud(g, "serve", 1); /* now agents start properly */
    assert_int_equal(list(g, item), 1);
    usleep(100000);
    assert_int_equal(process(g, "i-1", "agent.lock").pid, 0); /* one may still be starting */
    g->now += LOCAL_SPAWN_US;
    list(g, item);
    wait_up(g, "i-1");
    ground_free(g);
}

static void a_folder_without_a_document_is_nothing(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    char path[256];
    snprintf(path, sizeof path, "%s/i-empty", g->folder);
    assert_int_equal(mkdir(path, 0700), 0); /* left by a create that died early */
    struct listed item[32];
    assert_int_equal(list(g, item), 0);
    ground_free(g);
}

static uint32_t zombies(void)
{
    char path[320], state;
    uint32_t count = 0;
    DIR *dir = opendir("/proc");
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        long parent = 0;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        FILE *f = fopen(path, "re");
        if (!f) continue;
        bool is = fscanf(f, "%*d (%*[^)]) %c %ld", &state, &parent) == 2;
        count += is && state == 'Z' && parent == getpid();
        fclose(f);
    }
    closedir(dir);
    return count;
}

/* Listing collects ended agents, also those that ended by themselves. */
static void ended_agents_leave_no_zombies(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    struct listed made, item[32];
    enum offer_error class;
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof id, "i-%d", i);
        assert_int_equal(create(g, id, "small", &made, &class), 0);
        struct proc_id engine = wait_up(g, id), agent = process(g, id, "agent.lock");
        end(&engine);
        end(&agent);
    }
    assert_int_equal(zombies(), 3);
    list(g, item);
    assert_int_equal(zombies(), 0);
    remove_all(g);
    assert_int_equal(zombies(), 0);
    ground_free(g);
}

static void make(const char *root, const char *folder, const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "%s/ended/%s", root, folder);
    assert_int_equal(file_make_folders(path, 0700, NULL), 0);
    snprintf(path, sizeof path, "%s/ended/%s/%s", root, folder, file);
    assert_int_equal(file_write_atomic(path, STR("x"), 0600, NULL), 0);
}

/* A foreign file keeps its own folder and no other; leftovers of a killed writer, and older logs,
 * are ours. */
static void pruning_passes_over_what_it_cannot_remove(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    static const char *const ours[] = { "agent.log", "engine.log.1", "spawned.Ab12Xy",
                                        "spec.json" };
    make(g->folder, "a-stranger", "notes.txt");
    for (int i = 0; i < 3 * LOCAL_ENDED_MAX; i++) {
        char id[16];
        snprintf(id, sizeof id, "b-%02d", i);
        make(g->folder, id, ours[(size_t)i % COUNT_OF(ours)]);
    }
    struct listed made;
    enum offer_error class;
    assert_int_equal(create(g, "i-1", "small", &made, &class), 0);
    wait_up(g, "i-1");
    remove_all(g);
    char command[160];
    snprintf(command, sizeof command, "test $(ls '%s/ended' | wc -l) -eq %d", g->folder,
             LOCAL_ENDED_MAX + 1);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s/ended/a-stranger/notes.txt", g->folder);
    assert_int_equal(access(command, F_OK), 0);
    snprintf(command, sizeof command, "%s/ended/i-1", g->folder);
    assert_int_equal(access(command, F_OK), 0);
    ground_free(g);
}

static int fence(struct ground *g, uint64_t epoch, uint64_t *seen)
{
    return cloud_local_backend.fence(g->local, epoch, seen, NULL);
}

/* The folder keeps the highest epoch, for every process that shares it, and over their restarts. */
static void the_highest_epoch_is_kept(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    uint64_t seen = 0;
    assert_int_equal(fence(g, 5, &seen), 0);
    assert_int_equal(fence(g, 5, &seen), 0);
    assert_int_equal(fence(g, 7, &seen), 0);
    assert_int_equal(fence(g, 6, &seen), -EKEYREVOKED);
    assert_int_equal(seen, 7);
    cloud_local_backend.close(g->local);
    open_cloud(g, "serve", 1);
    assert_int_equal(fence(g, 6, &seen), -EKEYREVOKED);
    assert_int_equal(fence(g, 8, &seen), 0);
    /* What cannot be read or written keeps nothing back. */
    char path[96];
    snprintf(path, sizeof path, "%s/.epoch", g->folder);
    assert_int_equal(file_write_atomic(path, STR("nonsense"), 0600, NULL), 0);
    assert_int_equal(fence(g, 1, &seen), 0);
    struct listed item[32];
    assert_int_equal(list(g, item), 0); /* it is no instance */
    ground_free(g);
}

static void only_the_newest_logs_are_kept(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    for (int i = 0; i < LOCAL_ENDED_MAX + 4; i++) {
        char id[16];
        struct listed made;
        enum offer_error class;
        snprintf(id, sizeof id, "i-%d", i);
        assert_int_equal(create(g, id, "small", &made, &class), 0);
        wait_up(g, id);
        remove_all(g);
    }
    char command[160];
    snprintf(command, sizeof command, "test $(ls '%s/ended' | wc -l) -eq %d", g->folder,
             LOCAL_ENDED_MAX);
    assert_int_equal(system(command), 0);
    ground_free(g);
}

/* ---- a controller over it, killed at every step ---- */

/* Waits up to 200 ms of real time for the agents' processes. */
static void let_agents_come(struct ground *g, const struct listed *item, uint32_t count)
{
    for (int turn = 0; turn < 100; turn++) {
        uint32_t up = 0;
        for (uint32_t i = 0; i < count; i++)
            up += process(g, item[i].intent, "agent.lock").pid > 0;
        if (up == count) return;
        usleep(2000);
    }
}

/* Lets agents report and the controller tick. Returns -ECANCELED when the controller died. */
static int second(void *arg, struct control *c)
{
    struct ground *g = arg;
    struct listed item[32];
    g->now += SECOND;
    uint32_t n = list(g, item);
    let_agents_come(g, item, n);
    for (uint32_t i = 0; i < n; i++)
        if (process(g, item[i].intent, "agent.lock").pid)
            killed_cloud_report(c, item[i].intent, g->now);
    return control_tick(c, g->now);
}

static uint32_t there_now(void *arg)
{
    struct listed item[32];
    return list(arg, item);
}

/* ---- leftovers ---- */

struct told {
    uint32_t count, removed, kept;
    char names[256];
};

static void on_leftover(void *arg, const struct cloud_leftover *one)
{
    struct told *t = arg;
    size_t len = strlen(t->names);
    t->count++;
    t->removed += one->removed;
    t->kept += !one->removable;
    snprintf(t->names + len, sizeof t->names - len, "%s ", one->name);
}

/* Makes a folder as a launch leaves it that was never written down, this many seconds ago. */
static void plant_folder(const struct ground *g, const char *name, int age_s, const char *file)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", g->folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
    if (file) {
        char inside[200];
        snprintf(inside, sizeof inside, "%s/%s", path, file);
        assert_int_equal(file_write_atomic(inside, STR("x"), 0600, NULL), 0);
    }
    const struct timespec at = { .tv_sec = time(NULL) - age_s };
    const struct timespec times[2] = { at, at };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool is_there(const struct ground *g, const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", g->folder, name);
    return access(path, F_OK) == 0;
}

static void leftovers_are_old_folders_without_a_document(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    struct listed made;
    enum offer_error class;
    struct told t = { 0 };
    assert_int_equal(create(g, "i-1", "small", &made, &class), 0);
    plant_folder(g, "i-young", 5, NULL);
    plant_folder(g, "i-left", 100, "key.tmp");
    plant_folder(g, "i-ours", 100, "notes");
    const struct cloud_backend *b = &cloud_local_backend;
    assert_int_equal(b->leftovers(g->local, false, on_leftover, &t, NULL), 0);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.removed, 0);
    t = (struct told){ 0 };
    assert_int_equal(b->leftovers(g->local, true, on_leftover, &t, NULL), 0);
    assert_int_equal(t.removed, 1); /* the other one holds a file that is not ours */
    assert_true(!is_there(g, "i-left") && is_there(g, "i-ours"));
    assert_true(is_there(g, "i-young") && is_there(g, "i-1"));
    ground_free(g);
}

/* With no controller on the folder, what has ended goes to ended/ and what runs stays. */
static void alone_the_ended_go_and_the_living_stay(void **state)
{
    (void)state;
    struct ground *g = ground("serve", 1);
    struct listed made;
    enum offer_error class;
    struct told t = { 0 };
    assert_int_equal(create(g, "i-1", "small", &made, &class), 0);
    assert_int_equal(create(g, "i-2", "small", &made, &class), 0);
    wait_up(g, "i-1");
    struct proc_id engine = wait_up(g, "i-2"), agent = process(g, "i-2", "agent.lock");
    end(&agent);
    end(&engine);
    assert_int_equal(cloud_local_leftovers(g->folder, true, false, on_leftover, &t, NULL), 0);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.kept, 1);
    t = (struct told){ 0 };
    assert_int_equal(cloud_local_leftovers(g->folder, true, true, on_leftover, &t, NULL), 0);
    assert_int_equal(t.removed, 1);
    assert_true(is_there(g, "i-1") && !is_there(g, "i-2") && is_there(g, "ended/i-2"));
    ground_free(g);
}

static void killed_at_every_step(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < control_step_count; s++)
        for (uint64_t nth = 1; nth <= 2; nth++) {
            struct ground *g = ground("serve", 1);
            const struct killed_cloud k = { .provider = "local",
                                            .backend = &cloud_local_backend,
                                            .backend_ctx = g->local,
                                            .carried_out = true,
                                            .turns = 60,
                                            .quiet = 10,
                                            .now_us = &g->now,
                                            .second = second,
                                            .there = there_now,
                                            .ground = g };
            struct killed_count n = killed_cloud_run(&k, control_steps[s], nth, s * 10 + nth);
            if (n.crashes != 1 || n.most != 2 || n.left != 0)
                fail_msg("%s, time %llu: %u crashes, %u at once, %u left", control_steps[s],
                         (unsigned long long)nth, n.crashes, n.most, n.left);
            char command[160]; /* two instances were made in all */
            snprintf(command, sizeof command, "test $(ls '%s/ended' | wc -l) -eq 2", g->folder);
            if (system(command) != 0) fail_msg("%s: a second launch", control_steps[s]);
            ground_free(g);
        }
}

int main(int argc, char **argv)
{
    (void)argc;
    static char path[PATH_MAX];
    const char *slash = strrchr(argv[0], '/');
    snprintf(path, sizeof path, "%.*sfake_agent", slash ? (int)(slash - argv[0]) + 1 : 0, argv[0]);
    static char real[PATH_MAX];
    must(realpath(path, real));
    program = real;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_intent_is_one_instance),
        cmocka_unit_test(an_unreadable_document_is_listed_and_left),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_dead_agent_comes_back_to_its_engine),
        cmocka_unit_test(with_both_dead_it_is_gone),
        cmocka_unit_test(remove_without_an_agent_ends_the_engine),
        cmocka_unit_test(an_agent_that_never_comes_is_started_again),
        cmocka_unit_test(a_folder_without_a_document_is_nothing),
        cmocka_unit_test(ended_agents_leave_no_zombies),
        cmocka_unit_test(pruning_passes_over_what_it_cannot_remove),
        cmocka_unit_test(only_the_newest_logs_are_kept),
        cmocka_unit_test(the_highest_epoch_is_kept),
        cmocka_unit_test(leftovers_are_old_folders_without_a_document),
        cmocka_unit_test(alone_the_ended_go_and_the_living_stay),
        cmocka_unit_test(killed_at_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
