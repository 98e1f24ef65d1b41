/* fake_answer.c - makes replies of fakes of JSON APIs with a bearer token. */
#include "tests/fakes/cloud/fake_answer.h"

#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct json_writer *fake_reply(struct fake_answer *a, int status)
{
    buf_clear(&a->body);
    json_writer_init(&a->w, &a->body);
    a->status = status;
    return &a->w;
}

void fake_refuse(struct fake_answer *a, int status, const char *code, const char *message)
{
    fake_reply(a, status);
    a->api->put_error(a, code, message);
}

const struct fake_words *fake_words_of(const struct fake_words *words, const struct fleet_row *row)
{
    if (!row || row->fault == FLEET_FINE) return NULL;
    while (words->fault != FLEET_FINE && words->fault != row->fault)
        words++;
    return words->fault == row->fault ? words : NULL;
}

void fake_refuse_form(struct fake_answer *a, const char *why)
{
    const struct fleet_row invalid = { .fault = FLEET_INVALID };
    const struct fake_words *w = fake_words_of(a->api->words, &invalid);
    must(w);
    fake_fleet_bad_form(a->fleet, STR_FMT " " STR_FMT ": %s", STR_ARG(a->ask->method),
                        STR_ARG(a->at.path), why);
    fake_refuse(a, w->status, w->code, why);
}

static bool refuse_fault(struct fake_answer *a, const struct fleet_row *row)
{
    const struct fake_words *w = fake_words_of(a->api->words, row);
    if (!w) return false;
    fake_refuse(a, w->status, w->code, w->message);
    if (w->fault == FLEET_THROTTLE && a->api->retry_after) a->retry_after_us = row->delay_us;
    return true;
}

bool fake_meets(struct fake_answer *a, enum fleet_op op, const char *type, const char *zone)
{
    a->row = fake_fleet_meet(a->fleet, op, type, zone, a->now_us);
    return refuse_fault(a, a->row);
}

bool fake_is_undone(const struct fake_answer *a)
{
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    return fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE;
}

bool fake_make(struct fake_answer *a, const struct fleet_order *o, struct fleet_machine **ret)
{
    enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
    struct fleet_machine *twin;
    if (fake_is_undone(a)) return false;
    enum fleet_fault made =
        fake_fleet_create(a->fleet, o, fault == FLEET_LATE_SUCCESS ? a->row->delay_us : 0,
                          fault == FLEET_SLOW_BOOT ? a->row->delay_us : 0, a->now_us, ret);
    if (made != FLEET_FINE) {
        refuse_fault(a, &(struct fleet_row){ .fault = made });
        a->row = NULL;
        return false;
    }
    if (fault == FLEET_DUPLICATE) fake_fleet_create(a->fleet, o, 0, 0, a->now_us, &twin);
    return true;
}

const char *fake_text(struct fake_answer *a, const char *path)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (json_path_text(a->ask->body, path, &text) < 0) return "";
    return arena_str(a->arena, buf_view(&text)).data;
}

struct tags {
    struct fleet_tag *tag;
    uint32_t count;
};

static int take_variable(void *ctx, struct str name, struct str value)
{
    struct tags *t = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (!str_starts(name, STR("TAG_")) || t->count == FLEET_TAGS_MAX) return 0;
    if (json_path_text(value, "", &text) < 0) return 0;
    struct fleet_tag *tag = &t->tag[t->count++];
    snprintf(tag->name, sizeof tag->name, "%.*s", (int)name.len - 4, name.data + 4);
    snprintf(tag->value, sizeof tag->value, STR_FMT, STR_ARG(buf_view(&text)));
    for (char *c = tag->name; *c; c++)
        *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
    return 0;
}

uint32_t fake_tags_of_env(struct str env, struct fleet_tag *ret)
{
    struct tags t = { .tag = ret };
    json_path_each_member(env, "", take_variable, &t);
    return t.count;
}

bool fake_is(const struct fake_answer *a, const char *method, const char *path)
{
    return str_eq(a->ask->method, str_from(method)) && str_eq(a->at.path, str_from(path));
}

bool fake_is_bearer(const struct web_ask *ask, const char *token)
{
    char want[512];
    struct str has = form_header(ask, "authorization");
    snprintf(want, sizeof want, "Bearer %s", token);
    return has.data && str_eq(has, str_from(want));
}

void fake_put_header(struct web_reply *ret, struct arena *arena, const char *name,
                     const char *value)
{
    ret->header[ret->header_count++] =
        (struct web_header){ str_from(name), arena_str(arena, str_from(value)) };
}

void fake_fill(struct web_reply *ret, struct arena *arena, int status, struct buf *body,
               int64_t retry_after_us)
{
    char text[32];
    *ret = (struct web_reply){ .status = status,
                               .sent = true,
                               .body = arena_str(arena, buf_view(body)) };
    snprintf(text, sizeof text, "%lld", (long long)(retry_after_us / 1000000));
    if (retry_after_us > 0) fake_put_header(ret, arena, "retry-after", text);
    buf_fini(body);
}

int64_t fake_answer(const struct fake_api *api, struct fake_fleet *fleet, void *own,
                    const char *token, int64_t date_us, const struct web_ask *ask, int64_t now_us,
                    struct arena *arena, struct web_reply *ret)
{
    struct fake_answer a = { .api = api,
                             .fleet = fleet,
                             .own = own,
                             .ask = ask,
                             .arena = arena,
                             .now_us = now_us,
                             .date_us = date_us };
    int64_t took_us;
    if (form_target(ask->url, str_from(api->base), &a.at) < 0)
        fake_refuse_form(&a, "no URL of this API");
    else if (!fake_is_bearer(ask, token))
        refuse_fault(&a, &(struct fleet_row){ .fault = FLEET_AUTH });
    else if (ask->body.len > 0 && !str_eq(ask->content_type, STR("application/json")))
        fake_refuse_form(&a, "content-type");
    else
        api->route(&a);
    fake_fill(ret, arena, a.status, &a.body, a.retry_after_us);
    fleet_break_reply(a.row, ret, &took_us);
    return took_us;
}
