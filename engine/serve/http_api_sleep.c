/* http_api_sleep.c - puts the engine to sleep and wakes it: /sleep, /wake_up and /is_sleeping, as vLLM has them.
 *
 *     AWAKE ── /sleep ──► SETTLING ── the last request has ended ──► FALLING ──► ASLEEP
 *       ▲                     │                                                    │
 *       └───── /wake_up ──────┘             WAKING ◄──────── /wake_up ─────────────┘
 *       └──────────────── the weights are there ──┘ └── they are not: ASLEEP again
 *
 * From SETTLING on new requests are refused with 503, /health says so, and /internal/info that the engine is
 * not ready, so that routers send nothing. The loop looks for the last request's end at intervals: requests
 * end in many places, and nobody waits for a millisecond of sleep. The device thread itself gives the memory
 * back and reads the weights again, between two steps. */
#include "base/io/log.h"
#include "engine/serve/http_api_call.h"

#include <stdlib.h>

#define SETTLE_LOOK_US 10000

struct sleeper {
    struct http_api *api;
    struct http_exchange *x; /* that asked; NULL: its client has left */
    struct loop_timer look;
    struct device_call call;
    int rc; /* of the wake-up */
    struct err err;
};

static void on_left(void *arg, enum http_abort why)
{
    (void)why;
    ((struct sleeper *)arg)->x = NULL;
}

static void set_phase(struct http_api *api, enum sleep_phase phase)
{
    static const char *const names[] = { [SLEEP_AWAKE] = "awake",
                                         [SLEEP_SETTLING] = "settling",
                                         [SLEEP_FALLING] = "falling",
                                         [SLEEP_ASLEEP] = "asleep",
                                         [SLEEP_WAKING] = "waking" };
    api->sleep = phase;
    metric_set(engine_metric(api->metrics, EM_SLEEPING), phase == SLEEP_ASLEEP);
    log_event(LOG_INFO, "sleep", "phase=%s in_flight=%u", names[phase], api->call_count);
}

static void answer(struct sleeper *s)
{
    if (s->x) http_api_reply(s->api, s->x, 200, STR("{}"));
    s->x = NULL;
}

/* ---- to sleep ---- */

static void fall(struct device_call *call, struct executor *x)
{
    (void)call;
    executor_sleep(x);
}

static void asleep(struct device_call *call)
{
    struct sleeper *s = call->arg;
    set_phase(s->api, SLEEP_ASLEEP);
    answer(s);
}

static void look(void *arg)
{
    struct sleeper *s = arg;
    struct http_api *api = s->api;
    if (api->call_count > 0 || !list_empty(&api->prompts) || !list_empty(&api->kv_asks)) {
        loop_timer_set(api->loop, &s->look, loop_now_us(api->loop) + SETTLE_LOOK_US);
        return;
    }
    set_phase(api, SLEEP_FALLING);
    s->call = (struct device_call){ .fn = fall, .done = asleep, .arg = s };
    device_call(api->device, &s->call);
}

/* ---- and up again ---- */

static void wake(struct device_call *call, struct executor *x)
{
    struct sleeper *s = call->arg;
    s->rc = executor_wake(x, &s->err);
}

static void awake(struct device_call *call)
{
    struct sleeper *s = call->arg;
    struct http_api *api = s->api;
    set_phase(api, s->rc < 0 ? SLEEP_ASLEEP : SLEEP_AWAKE);
    if (s->rc == 0) {
        answer(s);
        return;
    }
    log_event(LOG_ERROR, "wake_failed", "error=%s", err_text(&s->err, s->rc));
    if (s->x)
        http_api_refuse(api, s->x, OPENAI_INTERNAL, NULL, "the engine sleeps on: %s",
                        err_text(&s->err, s->rc));
    s->x = NULL;
}

/* ---- requests ---- */

/* Returns true if the engine was started with sleep mode; else the request was refused. */
static bool is_enabled(struct http_api *api, struct http_exchange *x)
{
    if (api->config.sleep_mode) return true;
    http_api_refuse(api, x, OPENAI_URL_NOT_FOUND, NULL,
                    "sleep mode is off; start the engine with --enable-sleep-mode");
    return false;
}

static struct sleeper *sleeper_of(struct http_api *api, struct http_exchange *x)
{
    if (!api->sleeper) api->sleeper = calloc(1, sizeof *api->sleeper);
    if (!api->sleeper) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "no memory");
        return NULL;
    }
    api->sleeper->api = api;
    api->sleeper->look.fn = look;
    api->sleeper->look.arg = api->sleeper;
    return api->sleeper;
}

/* Both levels give back the same memory: the weights lie in the model's file anyway. */
static bool level_is_known(struct http_api *api, struct http_exchange *x)
{
    CLEANUP(buf_fini) struct buf level = { 0 };
    int rc = http_query_value(http_exchange_request(x)->query, "level", &level);
    if (rc == -ENOENT || str_eq(buf_view(&level), STR("1")) || str_eq(buf_view(&level), STR("2")))
        return true;
    http_api_refuse(api, x, OPENAI_INVALID, "level", "level must be 1 or 2");
    return false;
}

void handle_sleep(struct http_api *api, struct http_exchange *x)
{
    if (!is_enabled(api, x) || !level_is_known(api, x)) return;
    struct sleeper *s = sleeper_of(api, x);
    if (!s) return;
    if (api->state == HTTP_API_DRAINING) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "draining: the engine does not sleep");
    } else if (api->sleep == SLEEP_ASLEEP) {
        http_api_reply(api, x, 200, STR("{}"));
    } else if (api->sleep != SLEEP_AWAKE) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL,
                        "the engine is on its way to sleep or up; ask again");
    } else {
        s->x = x;
        http_exchange_watch(x, on_left, NULL, s);
        set_phase(api, SLEEP_SETTLING);
        look(s);
    }
}

void handle_wake_up(struct http_api *api, struct http_exchange *x)
{
    if (!is_enabled(api, x)) return;
    struct sleeper *s = sleeper_of(api, x);
    if (!s) return;
    if (api->sleep == SLEEP_SETTLING) {
        loop_timer_clear(api->loop, &s->look);
        set_phase(api, SLEEP_AWAKE);
        if (s->x)
            http_api_refuse(api, s->x, OPENAI_UNAVAILABLE, NULL,
                            "woken before the last request had ended");
        s->x = NULL;
    }
    if (api->sleep == SLEEP_AWAKE) {
        http_api_reply(api, x, 200, STR("{}"));
    } else if (api->sleep != SLEEP_ASLEEP) {
        http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL,
                        "the engine is on its way to sleep or up; ask again");
    } else {
        s->x = x;
        http_exchange_watch(x, on_left, NULL, s);
        set_phase(api, SLEEP_WAKING);
        s->call = (struct device_call){ .fn = wake, .done = awake, .arg = s };
        device_call(api->device, &s->call);
    }
}

void handle_is_sleeping(struct http_api *api, struct http_exchange *x)
{
    if (!is_enabled(api, x)) return;
    http_api_reply(api, x, 200,
                   api->sleep == SLEEP_ASLEEP ? STR("{\"is_sleeping\":true}")
                                              : STR("{\"is_sleeping\":false}"));
}

void sleep_free(struct http_api *api)
{
    if (api->sleeper) loop_timer_clear(api->loop, &api->sleeper->look);
    free(api->sleeper);
    api->sleeper = NULL;
}
