/* machine.c - keeps reports of accelerators, compares them with what was bought, and counts faults by their code. */
#include "controller/machine.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/log.h"
#include "base/perf/hardware.h"
#include "controller/control_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_SHARE 0.85 /* drivers keep a little of what data sheets say */

static struct str keep_in(char **to, struct str from)
{
    char *at = *to;
    if (from.len > 0) memcpy(at, from.data, from.len);
    *to += from.len;
    return str_of(at, from.len);
}

static void keep_text(char *to, size_t size, struct str from)
{
    size_t n = min_size(from.len, size - 1);
    if (n > 0) memcpy(to, from.data, n);
    to[n] = 0;
}

static struct known_machine *copy(const struct agent_report *r)
{
    size_t bytes = 0;
    if (r->gpu_count == 0 && r->fault_count == 0) return NULL;
    for (uint32_t i = 0; i < r->gpu_count; i++)
        bytes += r->gpus[i].name.len + r->gpus[i].uuid.len + r->gpus[i].hardware.len;
    for (uint32_t i = 0; i < r->fault_count; i++)
        bytes += r->faults[i].code.len;
    struct known_machine *k = calloc(1, sizeof *k + bytes);
    if (!k) return NULL;
    char *to = k->texts;
    for (; k->gpu_count < r->gpu_count; k->gpu_count++) {
        struct wire_gpu *g = &k->gpu[k->gpu_count];
        *g = r->gpus[k->gpu_count];
        g->name = keep_in(&to, g->name);
        g->uuid = keep_in(&to, g->uuid);
        g->hardware = keep_in(&to, g->hardware);
    }
    for (; k->fault_count < r->fault_count; k->fault_count++) {
        k->fault[k->fault_count] = r->faults[k->fault_count];
        k->fault[k->fault_count].code = keep_in(&to, r->faults[k->fault_count].code);
    }
    return k;
}

static void note(struct control *c, uint32_t at, const char *what, const char *text, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    const struct event_note event = { .what = what,
                                      .by = "agent",
                                      .service = i->service,
                                      .pool = i->pool,
                                      .instance = i->id,
                                      .offer = i->offer,
                                      .text = text };
    log_event(LOG_WARN, what, "id=%s offer=%s why=%s", i->id, i->offer, text);
    control_note(c, &event, now_us);
}

/* Says once that the machine has not what its offer is said to have: somebody pays for something else. */
static void compare(struct control *c, uint32_t at, int64_t now_us)
{
    const struct intent *i = &c->money.intent[at];
    struct machine_detail *m = &c->observed.detail[at].machine;
    uint32_t offer = control_find_offer(c, i->provider, i->offer);
    if (m->compared || !m->known || m->known->gpu_count == 0 || offer == PLAN_NONE) return;
    m->compared = true;
    const struct offer *o = &c->money.offer[offer];
    const struct hardware *sold = o->sold ? o->sold : hardware_find(str_from(o->hardware));
    const struct wire_gpu *g = &m->known->gpu[0];
    const struct hardware *is = hardware_find(g->hardware);
    bool small =
        g->memory_bytes > 0 && sold && (double)g->memory_bytes < MEMORY_SHARE * sold->mem_bytes;
    if (!sold || sold->cores > 0 || g->mig || !((is && is != sold) || small)) return;
    char text[INTENT_WHY_BYTES];
    snprintf(text, sizeof text, "offer %.40s is sold as %s, and the machine has " STR_FMT, o->name,
             sold->name, (int)min_size(g->name.len, 80), g->name.data);
    note(c, at, "hardware_differs", text, now_us);
}

static uint32_t count_of(const struct known_machine *k, struct str code)
{
    for (uint32_t i = 0; k && i < k->fault_count; i++)
        if (str_eq(k->fault[i].code, code)) return k->fault[i].count;
    return 0;
}

static void count_faults(struct control *c, uint32_t at, const struct agent_report *r)
{
    const struct detail *d = &c->observed.detail[at];
    if (d->agent_boot == 0) return;
    for (uint32_t i = 0; i < r->fault_count; i++) {
        uint32_t before =
            d->agent_boot == r->boot ? count_of(d->machine.known, r->faults[i].code) : 0;
        if (r->faults[i].count <= before) continue;
        metric_add(metric_series(c->metrics, CONTROL_M_GPU_FAULTS, &r->faults[i].code),
                   r->faults[i].count - before);
    }
}

void control_keep_machine(struct control *c, uint32_t at, const struct agent_report *r,
                          int64_t now_us)
{
    struct machine_detail *m = &c->observed.detail[at].machine;
    bool worse = r->machine > m->health;
    count_faults(c, at, r);
    free(m->known);
    m->known = copy(r);
    m->health = r->machine;
    keep_text(m->code, sizeof m->code, r->machine_code);
    keep_text(m->why, sizeof m->why, r->machine_why);
    compare(c, at, now_us);
    if (!worse) return;
    c->urgent = true;
    note(c, at, m->health == MACHINE_BROKEN ? "machine_broken" : "machine_failing", m->why, now_us);
}

int control_heed_machine(struct control *c, uint32_t at, int64_t now_us)
{
    struct detail *d = &c->observed.detail[at];
    char why[INTENT_WHY_BYTES];
    if (d->machine.health != MACHINE_BROKEN || d->doomed) return 0;
    if (c->money.intent[at].state > INTENT_DRAINING) return 0;
    d->doomed = true; /* nobody keeps it, and it is no loss by its provider */
    snprintf(why, sizeof why, "its machine is broken: %.160s", d->machine.why);
    return control_apply(c, at, INTENT_DRAIN, why, NULL, now_us);
}

static void put_gpu(struct json_writer *w, const struct wire_gpu *g)
{
    char text[WIRE_GPU_TEXT_BYTES_MAX + 1];
    json_object(w);
    keep_text(text, sizeof text, g->name);
    json_kv_text(w, "name", text);
    keep_text(text, sizeof text, g->uuid);
    json_kv_text(w, "uuid", text[0] ? text : NULL);
    keep_text(text, sizeof text, g->hardware);
    json_kv_text(w, "hardware", text[0] ? text : NULL);
    json_kv_bool(w, "mig", g->mig);
    if (g->memory_bytes > 0) json_kv_u64(w, "memory_bytes", g->memory_bytes);
    if (g->measured) json_kv_u64(w, "memory_used_bytes", g->memory_used_bytes);
    if (g->measured) json_kv_f64(w, "busy", g->busy);
    if (g->celsius > 0) json_kv_f64(w, "celsius", g->celsius);
    if (g->watts > 0) json_kv_f64(w, "watts", g->watts);
    json_object_end(w);
}

/* Writes how many of which there are, as people say it: "8 x NVIDIA H100 80GB HBM3". */
static void put_summary(struct json_writer *w, const struct known_machine *k)
{
    char text[WIRE_GPU_TEXT_BYTES_MAX + 32];
    json_key(w, "hardware");
    if (!k || k->gpu_count == 0) {
        json_put_null(w);
        return;
    }
    snprintf(text, sizeof text, "%u x " STR_FMT, k->gpu_count, STR_ARG(k->gpu[0].name));
    json_put_text(w, text);
}

void machine_put(struct json_writer *w, const struct machine_detail *m)
{
    json_key(w, "machine");
    json_object(w);
    json_kv_text(w, "health", machine_health_names[m->health]);
    json_kv_text(w, "why", m->why[0] ? m->why : NULL);
    put_summary(w, m->known);
    json_key(w, "gpus");
    json_array(w);
    for (uint32_t i = 0; m->known && i < m->known->gpu_count; i++)
        put_gpu(w, &m->known->gpu[i]);
    json_array_end(w);
    json_object_end(w);
}
