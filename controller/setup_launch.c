/* setup_launch.c - the command line of an instance's engine, from four places of the configuration.
 *
 *     muster engine  --what the file's `engine` section says  --model PATH --served-model-name NAME
 *                    --slo-ttft, --slo-tpot: what the service promises
 *                    the service's `engine` rows, its engine_flags, the pool's engine_flags
 *
 * What is said last holds, so that the nearer place is the stronger one. Another program is not told
 * promises: it would not know the flags. */
#include "controller/setup_launch.h"

#include "base/core/own.h"
#include "base/io/config_value.h"

#include <string.h>

#define SHARED "engine"

#define ROW(kind)                                                                     \
    {                                                                                 \
#        kind, "engine." #        kind, offsetof(struct service_section, engine.kind) \
    }
const struct setup_row setup_engine_rows[] = {
    ROW(preset), ROW(fair),  ROW(order), ROW(admit),   ROW(preempt),
    ROW(chunk),  ROW(evict), ROW(perf),  ROW(predict),
};
const size_t setup_engine_row_count = COUNT_OF(setup_engine_rows);

struct line {
    struct arena *arena;
    struct str *arg; /* LAUNCH_ARGS_MAX */
    size_t count;    /* may be more: then it does not fit */
    int rc;
};

static void add(struct line *l, struct str arg)
{
    if (l->count < LAUNCH_ARGS_MAX) l->arg[l->count] = arg;
    l->count++;
}

/* --the-name=value */
static void add_flag(struct line *l, const char *name, struct str value)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_text(&text, "--");
    for (const char *c = name; *c; c++)
        buf_byte(&text, *c == '_' ? '-' : *c);
    buf_byte(&text, '=');
    buf_str(&text, value);
    struct str copy = text.rc < 0 ? (struct str){ 0 } : arena_str(l->arena, buf_view(&text));
    if (!copy.data) l->rc = -ENOMEM;
    add(l, copy);
}

/* Every value of the section that somebody said. */
static void add_shared(struct line *l, const struct config *whole)
{
    const struct config_schema *schema = config_schema_of(whole);
    for (size_t i = 0; i < schema->count; i++) {
        const struct config_section *s = schema->sections[i];
        for (size_t k = 0; strcmp(s->name, SHARED) == 0 && k < s->record->field_count; k++) {
            CLEANUP(buf_fini) struct buf path = { 0 }, value = { 0 }, origin = { 0 };
            const char *name = s->record->fields[k].name;
            buf_printf(&path, SHARED ".%s", name);
            int rc = path.rc < 0 ? path.rc : config_lookup(whole, path.data, &value, &origin, NULL);
            if (rc < 0) l->rc = rc;
            if (rc < 0 || str_starts(buf_view(&origin), STR("default"))) continue;
            add_flag(l, name, buf_view(&value));
        }
    }
}

static void add_promise(struct line *l, const char *name, int64_t us)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = duration_print(us, &text);
    if (rc < 0) l->rc = rc;
    add_flag(l, name, buf_view(&text));
}

static void add_texts(struct line *l, const struct config_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        add(l, texts->items[i]);
}

/* The value of the last --name=VALUE or --name VALUE, which is the one that holds. */
static struct str last_value(const struct line *l, const char *name)
{
    struct str value = { 0 }, flag = str_from(name);
    for (size_t i = 0; i < l->count; i++) {
        struct str arg = l->arg[i];
        if (str_eq(arg, flag) && i + 1 < l->count) value = l->arg[i + 1];
        if (str_starts(arg, flag) && arg.len > flag.len && arg.data[flag.len] == '=')
            value = str_of(arg.data + flag.len + 1, arg.len - flag.len - 1);
    }
    return value;
}

int setup_launch(const struct controller_config *config, const struct service_section *s,
                 const struct pool_section *p, struct str program, struct arena *arena,
                 struct control_launch *ret, struct err *err)
{
    struct line l = { arena, arena_array(arena, LAUNCH_ARGS_MAX, sizeof *l.arg), 0, 0 };
    if (!l.arg) return err_set(err, -ENOMEM, "no memory for engine flags");
    bool other = s->engine_program.len > 0;
    add(&l, other ? s->engine_program : program);
    if (!other) add(&l, STR("engine"));
    if (config->whole) add_shared(&l, config->whole);
    add(&l, STR("--model"));
    add(&l, s->model);
    add(&l, STR("--served-model-name"));
    add(&l, s->name);
    if (!other) {
        add_promise(&l, "slo_ttft", s->slo_ttft_us);
        add_promise(&l, "slo_tpot", s->slo_tpot_us);
    }
    for (size_t i = 0; i < setup_engine_row_count; i++) {
        struct str name = setup_row_name(s, &setup_engine_rows[i]);
        if (name.len > 0) add_flag(&l, setup_engine_rows[i].kind, name);
    }
    add_texts(&l, &s->engine_flags);
    add_texts(&l, &p->engine_flags);
    if (l.rc < 0) return err_set(err, l.rc, "no memory for engine flags");
    if (l.count > LAUNCH_ARGS_MAX)
        return err_set(err, -E2BIG, "service %s: more than %d engine arguments", s->name.data,
                       LAUNCH_ARGS_MAX);
    *ret = (struct control_launch){ .kind = ENGINE_MUSTER,
                                    .engine_args = l.arg,
                                    .engine_arg_count = (uint32_t)l.count,
                                    .tls_certificate = last_value(&l, "--tls-certificate"),
                                    .tls_key = last_value(&l, "--tls-key") };
    return 0;
}
