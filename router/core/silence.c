/* silence.c - keeps the limit in force and the time of the next look. */
#include "router/core/silence.h"

static int64_t limit_us(const struct silence *s, const struct silence_config *c)
{
    int64_t beats_us = SILENCE_BEATS * s->beat_us;
    if (s->ours && !s->has_head) return c->head_us;
    if (s->ours && s->beat_us > 0) return c->gap_us > beats_us ? c->gap_us : beats_us;
    if (s->ours || !s->streams) return INT64_MAX;
    return s->has_bytes ? c->other_gap_us : c->other_first_us;
}

static void plan(struct silence *s, const struct silence_config *c)
{
    int64_t limit = limit_us(s, c);
    s->look_us = limit < INT64_MAX - s->heard_us ? s->heard_us + limit : INT64_MAX;
}

void silence_begin(struct silence *s, const struct silence_config *c, bool ours, bool streams,
                   int64_t now_us)
{
    *s = (struct silence){ .ours = ours, .streams = streams, .heard_us = now_us };
    plan(s, c);
}

void silence_head(struct silence *s, const struct silence_config *c, int64_t beat_us,
                  int64_t now_us)
{
    s->has_head = true;
    s->beat_us = beat_us;
    s->heard_us = now_us;
    plan(s, c);
}

void silence_heard(struct silence *s, const struct silence_config *c, int64_t now_us)
{
    bool first = !s->has_bytes;
    s->has_bytes = true;
    s->heard_us = now_us;
    if (first) plan(s, c); /* later ones move the look when it comes */
}

bool silence_look(struct silence *s, const struct silence_config *c, int64_t now_us)
{
    /* The bytes that would have come by then may lie unread. */
    if (now_us - s->look_us > SILENCE_LATE_US) s->heard_us = now_us;
    plan(s, c);
    return now_us >= s->look_us;
}
