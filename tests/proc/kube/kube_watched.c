/* kube_watched.c - writes the events of a watch down. */
#include "tests/proc/kube/kube_watched.h"

#include "base/core/own.h"

void kube_watched_event(void *arg, const struct kube_event *e)
{
    struct kube_watched *s = arg;
    static const char signs[] = { [KUBE_ADDED] = '+', [KUBE_MODIFIED] = '~', [KUBE_DELETED] = '-' };
    if (e->type == KUBE_SYNCED)
        buf_text(&s->log, "= ");
    else
        buf_printf(&s->log, "%c%s ", signs[e->type], e->meta->name);
    if (e->type == KUBE_ADDED || e->type == KUBE_MODIFIED) {
        struct kube_meta meta;
        assert_int_equal(kube_meta_read(e->object, &meta, NULL), 0);
        assert_string_equal(meta.uid, e->meta->uid);
    }
    if (++s->events == s->stop_at) kube_watch_stop(TAKE(s->watch));
}

void kube_watched_start(struct kube_world *w, struct kube_watched *s, struct kube_watch_request req)
{
    struct err err = { 0 };
    req.resource = &kube_configmaps;
    req.ns = STR(KUBE_RIG_NS);
    req.on_event = kube_watched_event;
    req.arg = s;
    if (kube_watch_start(w->client, &req, &s->watch, &err) < 0) fail_msg("%s", err.text);
}

void kube_watched_end(struct kube_watched *s)
{
    kube_watch_stop(s->watch);
    buf_fini(&s->log);
    *s = (struct kube_watched){ 0 };
}

struct kube_watch_state kube_watched_state(const struct kube_watched *s)
{
    struct kube_watch_state state;
    kube_watch_state_get(s->watch, &state);
    return state;
}

void kube_watched_until(struct kube_world *w, const struct kube_watched *s, const char *text)
{
    int64_t until_us = clock_mono_us() + RIG_WAIT_US;
    while (!s->log.data || strcmp(s->log.data, text) != 0) {
        if (clock_mono_us() > until_us)
            fail_msg("\"%s\" and not \"%s\": %s", s->log.data ? s->log.data : "", text,
                     kube_watched_state(s).problem);
        assert_int_equal(loop_turn(w->loop, 2000), 0);
    }
}
