/* notice.c - asks the machine's metadata service again and again, as metadata.h says.
 *
 * A service that cannot be reached is logged when that begins: on a machine without one the setting is wrong, and
 * elsewhere a notice would be missed. */
#include "agent/notice.h"

#include "base/core/own.h"
#include "base/io/fetch.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"

#include <stdlib.h>

#define SILENT_US 600000000 /* between two such lines */

struct notice_watch {
    struct loop *loop;
    struct metadata metadata;
    struct fetch *fetch;
    struct fetch_call *call; /* NULL: none is under way */
    struct loop_timer timer;
    uint32_t asks; /* in this round */
    struct log_limit silent;
    notice_fn *fn;
    void *arg;
};

static void ask(struct notice_watch *w);

static void on_timer(void *arg)
{
    struct notice_watch *w = arg;
    w->asks = 0;
    ask(w);
}

static void rest(struct notice_watch *w)
{
    int64_t pause_us = w->metadata.source == NOTICE_GCE ? NOTICE_POLL_SHORT_US : NOTICE_POLL_US;
    /* Without memory for a timer there are no more rounds: the provider's listing still tells the controller. */
    if (loop_timer_set(w->loop, &w->timer, loop_now_us(w->loop) + pause_us) < 0)
        log_event(LOG_ERROR, "notice_lost", "why=no memory for a timer");
}

static void say_silent(struct notice_watch *w, const char *why)
{
    uint64_t skipped;
    if (log_pass(&w->silent, loop_now_us(w->loop), SILENT_US, &skipped))
        log_event(LOG_WARN, "notice_unheard", "source=%s why=%s skipped=%llu",
                  notice_source_names[w->metadata.source], why, (unsigned long long)skipped);
}

static void on_end(void *arg, const struct fetch_reply *r)
{
    struct notice_watch *w = arg;
    char why[NOTICE_WHY_BYTES] = "";
    int64_t left_us = 0;
    w->call = NULL;
    if (r->end == FETCH_CANCELLED) return;
    int status = r->end == FETCH_OK ? r->status : 0;
    if (status == 0) say_silent(w, r->problem);
    enum notice_found found =
        metadata_take(&w->metadata, status, r->body, clock_wall_us(), &left_us, why);
    if (found == NOTICE_LEAVES) w->fn(w->arg, left_us, why);
    if (found == NOTICE_AT_RISK) w->fn(w->arg, -1, why);
    if (found == NOTICE_AGAIN && w->asks < NOTICE_ASKS_MAX)
        ask(w);
    else
        rest(w);
}

static void ask(struct notice_watch *w)
{
    struct metadata_request q;
    struct err err = { 0 };
    int rc = metadata_ask(&w->metadata, &q);
    const struct fetch_header header = { str_from(q.header), str_from(q.value) };
    const struct fetch_request request = { .method = str_from(q.method),
                                           .url = str_from(q.url),
                                           .headers = &header,
                                           .header_count = 1,
                                           .body_bytes_max = METADATA_REPLY_BYTES,
                                           .deadline_us = loop_now_us(w->loop) + NOTICE_ASK_US,
                                           .on_end = on_end,
                                           .arg = w };
    w->asks++;
    if (rc == 0) rc = fetch_start(w->fetch, &request, &w->call, &err);
    if (rc == 0) return;
    say_silent(w, err_text(&err, rc));
    rest(w);
}

int notice_open(struct loop *l, const struct metadata *metadata, notice_fn *fn, void *arg,
                struct notice_watch **ret, struct err *err)
{
    struct notice_watch *w = calloc(1, sizeof *w);
    must(w);
    *w = (struct notice_watch){ .loop = l, .metadata = *metadata, .fn = fn, .arg = arg };
    w->timer = (struct loop_timer){ .fn = on_timer, .arg = w };
    /* No proxy: the service is the machine's own. */
    const struct fetch_config config = { .running_max = 1, .waiting_max = 1 };
    struct metadata_request first;
    int rc = metadata_ask(metadata, &first);
    if (rc < 0) err_set(err, rc, "agent.notice_url is longer than %d bytes", METADATA_URL_BYTES);
    if (rc == 0) rc = fetch_new(l, &config, &w->fetch, err);
    if (rc == 0) rc = loop_timer_set(l, &w->timer, loop_now_us(l));
    if (rc < 0) {
        notice_close(w);
        return rc;
    }
    *ret = w;
    return 0;
}

void notice_close(struct notice_watch *w)
{
    if (!w) return;
    loop_timer_clear(w->loop, &w->timer);
    if (w->call) fetch_cancel(w->call);
    fetch_free(w->fetch);
    free(w);
}
