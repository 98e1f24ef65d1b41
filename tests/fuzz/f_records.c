/* f_records.c - reads any bytes as a record of the store or of an instance's folder: an intent, a
 * tenant, an override, the state of policies, the cost, the launch document or a process's id.
 *
 * The first byte selects the record. Those of the store go through a whole controller: it starts, or
 * says in a sentence why not, shows itself as JSON, and reads back what it wrote. */
#include "base/core/own.h"
#include "base/io/log.h"
#include "base/io/proc.h"
#include "base/wire/launch.h"
#include "controller/core/intent.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/controller/world.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA_BYTES ((size_t)1 << 20)

static void check_intent(struct str text)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    CLEANUP(buf_fini) struct buf first = { 0 }, second = { 0 };
    struct intent a = { 0 }, b = { 0 };
    struct err err = { 0 };
    arena_init(&arena, ARENA_BYTES);
    int rc = intent_decode(text, &arena, &a, &err);
    must(rc == 0 || err.text[0]);
    if (rc < 0) return;
    must(intent_encode(&a, &first) == 0);
    must(intent_decode(buf_view(&first), &arena, &b, &err) == 0);
    must(intent_encode(&b, &second) == 0 && str_eq(buf_view(&first), buf_view(&second)));
}

static void check_launch(struct str text)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    CLEANUP(buf_fini) struct buf first = { 0 };
    struct launch_spec a = { 0 }, b = { 0 };
    struct err err = { 0 };
    arena_init(&arena, ARENA_BYTES);
    int rc = launch_spec_decode(text, &arena, &a, &err);
    must(rc == 0 || err.text[0]);
    if (rc < 0) return;
    must(a.engine_arg_count > 0 && launch_spec_encode(&a, &first) == 0);
    must(launch_spec_decode(buf_view(&first), &arena, &b, &err) == 0);
}

static void check_process(struct str text)
{
    struct proc_id id, again;
    char printed[PROC_ID_TEXT_MAX];
    if (proc_id_parse(text, &id) < 0) return;
    proc_id_print(&id, printed);
    must(proc_id_parse(str_from(printed), &again) == 0 && proc_id_eq(&id, &again));
}

static void check_view(struct control *c, enum control_view view)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_reader r;
    must(control_view(c, view, WORLD_START, &out) == 0);
    json_reader_init(&r, buf_view(&out));
    json_skip(&r);
    must(json_next(&r) == JSON_END);
}

/* Puts one record into an otherwise empty store and starts the controller on it twice. */
static void check_stored(struct str key, struct str value)
{
    struct world *w = world_new(NULL);
    uint64_t version;
    if (store_put_if(w->store, key, value, STORE_ABSENT, &version, NULL) == 0) {
        for (int start = 0; start < 2; start++) {
            struct err err = { 0 };
            int rc = control_new(&w->setup, w->now, &w->control, &err);
            must(rc == 0 || err.text[0]);
            if (rc < 0) break;
            for (enum control_view v = 0; v < CONTROL_VIEW_COUNT; v++)
                check_view(w->control, v);
            control_tick(w->control, w->now);
            world_kill(w);
        }
    }
    world_free(w);
}

/* The flat cost is two controllers and their ticks. */
const struct fuzz_cost fuzz_cost = { 20000000, 20000 };

void fuzz_one(const uint8_t *data, size_t len)
{
    static const struct str keys[] = { STR("intent/i-000000000001"), STR("tenant/a"),
                                       STR("hand/chat"), STR("memory/chat"), STR("cost") };
    if (len == 0) return;
    struct str rest = str_of(data + 1, len - 1);
    log_set_level(LOG_LEVEL_COUNT - 1);
    if (data[0] == 'i') check_intent(rest);
    if (data[0] == 'l') check_launch(rest);
    if (data[0] == 'p') check_process(rest);
    if (data[0] >= '0' && data[0] < '5') check_stored(keys[data[0] - '0'], rest);
}
