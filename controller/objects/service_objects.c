/* service_objects.c - watches MusterServices, brings them into force one after the other, and writes their status.
 *
 *     event ─► seen (what the cluster has) ─► settle (what is to be in force) ─► tell (status, events)
 *
 * One object is changed at a time, so that a refusal has one cause. What is in force is not kept here: the list of
 * the configuration is the truth, and an object that equals its entry needs nothing. */
#include "controller/objects/service_objects.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/kube/kube_watch.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"
#include "controller/events.h"
#include "controller/metrics.h"
#include "controller/objects/object_events.h"
#include "controller/orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BY_BYTES 80
#define LIST_ARENA_BYTES (4 * SERVICE_LIST_BYTES_MAX)
#define GONE_MAX 32 /* services that were taken away of late */

struct seen { /* an object of the cluster */
    struct service_objects *owner;
    struct service_object object;
    bool readable;      /* `object` holds a service */
    struct err trouble; /* why not */
    uint64_t tried;     /* digest of the specification that `verdict` is about */
    uint64_t tried_in;  /* generation of the configuration at that time */
    int64_t again_us;   /* try again then; 0: only when something has changed */
    struct service_verdict verdict;
    struct service_state state[SERVICE_CONDITION_COUNT];
    struct attainment attainment;
    bool was_decided;
    uint32_t was_desired;
    struct kube_call *call;    /* of its status */
    uint64_t writing, written; /* digests of the status; 0: none */
    uint64_t ours;             /* digest of the status as the API server told it after our write */
    int64_t written_us;
};

struct gone {
    char name[NAME_BYTES];
    uint64_t fixed;
};

struct service_objects {
    struct service_objects_config config;
    struct kube_config *cluster;
    struct kube_client *client;
    struct object_events *events;
    struct object_events_counts told; /* of events, as metrics have them */
    struct kube_watch *watch;         /* NULL: no term */
    struct control *control;
    struct loop_timer timer;
    struct seen *seen[SERVICE_OBJECTS_MAX];
    uint32_t count;
    bool synced;
    uint64_t overflow;          /* objects that found no room in this term */
    struct gone gone[GONE_MAX]; /* a ring */
    uint32_t gone_next;
    uint64_t events_at; /* of the controller's events: told so far */
    int64_t begun_us;
};

static int64_t now_us(const struct service_objects *o)
{
    return loop_now_us(o->config.loop);
}

static void look_at(struct service_objects *o, int64_t at_us)
{
    if (loop_timer_is_set(&o->timer) && o->timer.node.key <= at_us) return;
    (void)loop_timer_set(o->config.loop, &o->timer, at_us); /* the next event sets it again */
}

static struct seen *find(const struct service_objects *o, struct str name)
{
    for (uint32_t i = 0; i < o->count; i++)
        if (str_eq(str_from(o->seen[i]->object.meta.name), name)) return o->seen[i];
    return NULL;
}

static void count(struct service_objects *o, const char *what, const char *result, double n)
{
    const struct str label[] = { str_from(what), str_from(result) };
    metric_add(metric_series(o->config.metrics, CONTROL_M_OBJECT_WRITES, label), n);
}

static void tell(struct service_objects *o, const struct seen *s, bool warning, const char *reason,
                 const char *action, const char *note)
{
    const struct object_event e = { .about = &s->object.meta,
                                    .api_version = SERVICE_GROUP "/" SERVICE_VERSION,
                                    .kind = SERVICE_KIND,
                                    .warning = warning,
                                    .reason = reason,
                                    .action = action,
                                    .note = note };
    object_events_tell(o->events, &e);
}

/* ---- what the cluster has ---- */

static void seen_free(struct seen *s)
{
    if (s->call) kube_cancel(s->call);
    service_object_fini(&s->object);
    free(s);
}

static void forget(struct service_objects *o, const char *name)
{
    for (uint32_t i = 0; i < o->count; i++) {
        if (strcmp(o->seen[i]->object.meta.name, name) != 0) continue;
        seen_free(o->seen[i]);
        o->seen[i] = o->seen[--o->count];
        return;
    }
}

static struct seen *add(struct service_objects *o, const struct kube_meta *meta)
{
    struct seen *s = o->count < SERVICE_OBJECTS_MAX ? calloc(1, sizeof *s) : NULL;
    if (s) {
        s->owner = o;
        o->seen[o->count++] = s;
    } else if (o->overflow++ == 0) {
        log_event(LOG_ERROR, "service_object_ignored", "object=%s error=\"more than %d\"",
                  meta->name, SERVICE_OBJECTS_MAX);
    }
    return s;
}

/* Looks whether somebody else has written the status since we did: then it is written again. */
static void check_status(struct seen *s, struct str object)
{
    struct str status = { 0 };
    (void)json_path(object, "status", &status);
    uint64_t digest = hash64(status.data, status.len, 0);
    if (s->written && !s->call && digest != s->ours) s->written = 0;
}

static void take(struct service_objects *o, const struct kube_event *e)
{
    struct seen *s = find(o, str_from(e->meta->name));
    bool fresh = s == NULL;
    if (!s) s = add(o, e->meta);
    if (!s) return;
    service_object_fini(&s->object);
    s->trouble = (struct err){ 0 };
    s->readable = service_object_read(e->object, &s->object, &s->trouble) == 0;
    s->object.meta = *e->meta;
    if (fresh)
        service_conditions_read(e->object, s->state);
    else
        check_status(s, e->object);
}

static void on_event(void *arg, const struct kube_event *e)
{
    struct service_objects *o = arg;
    if (e->type == KUBE_SYNCED) {
        log_event(LOG_INFO, "service_objects_listed", "count=%u", o->count);
        o->synced = true;
    } else if (e->type == KUBE_DELETED) {
        forget(o, e->meta->name);
    } else {
        take(o, e);
    }
    look_at(o, now_us(o) + SERVICE_SOON_US);
}

/* ---- what is to be in force ---- */

static void name_giver(const struct str object, char ret[BY_BYTES])
{
    snprintf(ret, BY_BYTES, "musterservice/%.*s", (int)min_size(object.len, 60), object.data);
}

static void remember_gone(struct service_objects *o, const struct service_entry *e)
{
    struct gone *g = &o->gone[o->gone_next++ % GONE_MAX];
    snprintf(g->name, sizeof g->name, STR_FMT, STR_ARG(e->name));
    g->fixed = service_object_fixed(e->service);
}

/* Returns true if instances of an earlier service of this name run which may not serve this one. */
static bool must_wait(const struct service_objects *o, const struct service_object *object)
{
    struct service_facts facts;
    struct str name = str_from(object->name);
    uint64_t fixed = service_object_fixed(buf_view(&object->service));
    service_facts_read(o->control, name, &facts);
    if (facts.known || service_instances(o->control, name) == 0) return false;
    for (uint32_t i = 0; i < GONE_MAX; i++)
        if (strcmp(o->gone[i].name, object->name) == 0 && o->gone[i].fixed == fixed) return false;
    return true;
}

/* Makes the list of services the one in force. */
static int put_list(struct service_objects *o, const struct service_list *list, struct str object,
                    struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char by[BY_BYTES];
    name_giver(object, by);
    int rc = service_list_write(list, &text);
    if (rc < 0) return err_set(err, rc, "no memory for the services of objects");
    return o->config.change(o->config.arg, buf_view(&text), by, err);
}

/* Takes entry `at` out of the list, and its service out of force: its instances drain. */
static int take_away(struct service_objects *o, struct service_list *list, uint32_t at)
{
    struct service_entry gone = list->entry[at];
    struct err err = { 0 };
    memmove(&list->entry[at], &list->entry[at + 1], (list->count - at - 1) * sizeof gone);
    list->count--;
    int rc = put_list(o, list, gone.object, &err);
    if (rc < 0) {
        log_event(LOG_ERROR, "service_object_kept", "object=%.*s error=%s", STR_ARG(gone.object),
                  err_text(&err, rc));
        return rc;
    }
    remember_gone(o, &gone);
    return 0;
}

/* Carries spec.replicas out, between two writes of the list: the first brings the service into force with the
 * replicas from before, the second says that the new ones were carried out. */
static int set_replicas(struct service_objects *o, struct service_list *list,
                        struct service_entry *e, int64_t replicas, struct err *err)
{
    char by[BY_BYTES], text[32] = "auto";
    name_giver(e->object, by);
    int rc = service_replicas_set(o->control, e->name, replicas, err);
    if (rc < 0) return rc;
    if (replicas >= 0) snprintf(text, sizeof text, "%lld", (long long)replicas);
    const struct control_order order = {
        .what = "scale", .by = by, .service = e->name, .text = text
    };
    control_order_done(o->control, &order, fleet_clock_now(o->config.clock));
    e->replicas = replicas;
    return put_list(o, list, e->object, err);
}

/* Puts the object into the list, in place of its entry from before. */
static int put_in_force(struct service_objects *o, const struct seen *s, struct service_list *list,
                        struct arena *arena, struct err *err)
{
    const struct service_object *b = &s->object;
    struct service_entry *entry = arena_array(arena, SERVICE_LIST_MAX, sizeof *entry), *e = NULL;
    struct service_list next = { entry, list->count };
    if (!entry) return err_set(err, -ENOMEM, "no memory for the services of objects");
    if (list->count > 0) memcpy(entry, list->entry, list->count * sizeof *entry);
    for (uint32_t i = 0; i < next.count && !e; i++)
        if (str_eq(entry[i].object, str_from(b->meta.name))) e = &entry[i];
    if (!e && next.count == SERVICE_LIST_MAX)
        return err_set(err, -ENOSPC, "%d services of objects are in force already",
                       SERVICE_LIST_MAX);
    bool known = e && str_eq(e->name, str_from(b->name));
    bool same =
        known && str_eq(e->service, buf_view(&b->service)) && str_eq(e->uid, str_from(b->meta.uid));
    if (!e) e = &entry[next.count++];
    *e = (struct service_entry){ .object = str_from(b->meta.name),
                                 .uid = str_from(b->meta.uid),
                                 .name = str_from(b->name),
                                 .service = buf_view(&b->service),
                                 .generation = (uint64_t)b->meta.generation,
                                 .replicas = known ? e->replicas : -1 };
    int rc = same ? 0 : put_list(o, &next, e->object, err);
    if (rc == 0 && e->replicas != b->replicas) rc = set_replicas(o, &next, e, b->replicas, err);
    return rc;
}

static const char *reason_of(int rc)
{
    return rc == -EEXIST                    ? "NameTaken"
           : rc == -ENOSPC                  ? "TooMany"
           : rc == -EBUSY                   ? "InstancesLeft"
           : rc == -EINVAL || rc == -ERANGE ? "Invalid"
                                            : "NotNow";
}

/* Tries to bring the object's specification into force. 0 also when it is there already. */
static int try_object(struct service_objects *o, struct seen *s, struct service_list *list,
                      struct arena *arena, struct err *err)
{
    const struct service_object *b = &s->object;
    if (!s->readable) return err_set(err, -EINVAL, "%s", s->trouble.text);
    int rc = service_object_check(o->config.schema, b, err);
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < list->count; i++)
        if (str_eq(list->entry[i].name, str_from(b->name)) &&
            !str_eq(list->entry[i].object, str_from(b->meta.name)))
            return err_set(err, -EEXIST,
                           "service '%s' is that of musterservice/" STR_FMT
                           "; give this one another spec.name",
                           b->name, STR_ARG(list->entry[i].object));
    if (must_wait(o, b))
        return err_set(err, -EBUSY, "%u instances of an earlier service '%s' finish their requests",
                       service_instances(o->control, str_from(b->name)), b->name);
    return put_in_force(o, s, list, arena, err);
}

/* Returns true if the verdict stands: it is about this specification, and nothing that it may hang on changed. */
static bool is_settled(const struct seen *s, uint64_t generation, int64_t at_us)
{
    if (!s->verdict.tried || s->tried != s->object.digest ||
        s->verdict.generation != s->object.meta.generation)
        return false;
    if (!s->verdict.refused) return true;
    return s->tried_in == generation && (s->again_us == 0 || at_us < s->again_us);
}

static void judge(struct service_objects *o, struct seen *s, int rc, const struct err *err,
                  uint64_t generation)
{
    struct service_verdict v = { .tried = true, .generation = s->object.meta.generation };
    bool news = !s->verdict.tried || s->tried != s->object.digest;
    if (rc < 0) {
        v.refused = reason_of(rc);
        v.why = *err;
        if (!v.why.text[0]) err_set(&v.why, rc, "%s", err_text(err, rc));
        service_object_sentence(&v.why);
        news |= !s->verdict.refused || strcmp(v.why.text, s->verdict.why.text) != 0;
    } else {
        news |= s->verdict.refused != NULL;
    }
    bool says = rc == -EINVAL || rc == -ERANGE || rc == -EEXIST; /* until somebody changes it */
    s->again_us = rc < 0 && !says ? now_us(o) + SERVICE_AGAIN_US : 0;
    s->tried = s->object.digest;
    s->tried_in = generation;
    s->verdict = v;
    if (!news) return;
    if (rc < 0)
        log_event(LOG_WARN, "service_object_refused", "object=%s generation=%lld error=%s",
                  s->object.meta.name, (long long)v.generation, v.why.text);
    else
        log_event(LOG_INFO, "service_object_accepted", "object=%s generation=%lld",
                  s->object.meta.name, (long long)v.generation);
    tell(o, s, rc < 0, rc < 0 ? "Refused" : "Accepted", "Configure",
         rc < 0 ? v.why.text : "the specification is in force");
}

static void read_list(struct service_objects *o, struct arena *arena, struct service_list *ret,
                      uint64_t *ret_generation)
{
    struct err err = { 0 };
    arena_reset(arena);
    int rc = service_list_read(o->config.list(o->config.arg, ret_generation), arena, ret, &err);
    if (rc < 0) log_event(LOG_ERROR, "service_list_unreadable", "error=%s", err_text(&err, rc));
}

/* Takes away the services whose objects are gone, or are being deleted, one at a time. Returns true if one went. */
static bool end_one(struct service_objects *o, struct service_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct seen *s = find(o, list->entry[i].object);
        bool ignored = !s && o->overflow > 0; /* it may be one of those that found no room */
        if (ignored || (s && !s->object.meta.deleting)) continue;
        return take_away(o, list, i) == 0;
    }
    return false;
}

/* A new object under the name of one that was in force, which its own specification cannot replace: the old one's
 * service ends, and the new one waits until its instances have. */
static bool replaces(struct service_objects *o, struct seen *s, struct service_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct service_entry *e = &list->entry[i];
        if (!str_eq(e->object, str_from(s->object.meta.name))) continue;
        return !str_eq(e->uid, str_from(s->object.meta.uid)) && take_away(o, list, i) == 0;
    }
    return false;
}

static void settle(struct service_objects *o)
{
    CLEANUP(arena_fini) struct arena arena;
    struct service_list list;
    uint64_t generation;
    arena_init(&arena, LIST_ARENA_BYTES);
    do
        read_list(o, &arena, &list, &generation);
    while (end_one(o, &list));
    for (uint32_t i = 0; i < o->count; i++) {
        struct seen *s = o->seen[i];
        struct err err = { 0 };
        if (s->object.meta.deleting || is_settled(s, generation, now_us(o))) continue;
        int rc = try_object(o, s, &list, &arena, &err);
        if (rc < 0 && replaces(o, s, &list)) {
            look_at(o, now_us(o) + SERVICE_SOON_US);
            rc = err_set(&err, -EBUSY, "instances of the object before it finish their requests");
        }
        read_list(o, &arena, &list, &generation);
        judge(o, s, rc, &err, generation);
    }
    for (uint32_t i = 0; i < o->count; i++)
        o->seen[i]->verdict.before =
            service_list_find(&list, str_from(o->seen[i]->object.meta.name)) != NULL;
}

/* ---- what is told ---- */

static void on_written(void *arg, const struct kube_reply *reply)
{
    struct seen *s = arg;
    struct str status = { 0 };
    s->call = NULL;
    count(s->owner, "status", reply->rc == 0 ? "ok" : "failed", 1);
    if (reply->rc == 0) {
        s->written = s->writing;
        (void)json_path(reply->body, "status", &status);
        s->ours = hash64(status.data, status.len, 0);
    } else if (reply->rc != -ENOENT) {
        log_event(LOG_WARN, "status_not_written", "object=%s error=%s", s->object.meta.name,
                  reply->problem);
    }
}

static void write_status(struct service_objects *o, struct seen *s, const struct service_facts *f,
                         double attainment)
{
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct err err = { 0 };
    char selector[KUBE_POD_SELECTOR_BYTES];
    if (s->call || (s->written_us && now_us(o) - s->written_us < SERVICE_STATUS_US)) return;
    kube_pod_selector(o->config.section->fleet, str_from(s->object.name), selector);
    if (service_status_write(&s->object.meta, selector, &s->verdict, f, attainment, s->state,
                             &body) < 0)
        return;
    s->writing = hash64(body.data, body.len, 1);
    if (s->writing == s->written || !o->config.leads(o->config.arg)) return;
    const struct kube_request req = { .verb = KUBE_APPLY,
                                      .resource = &service_resource,
                                      .ns = str_from(s->object.meta.ns),
                                      .name = str_from(s->object.meta.name),
                                      .subresource = "status",
                                      .body = buf_view(&body),
                                      .force = true,
                                      .on_end = on_written,
                                      .arg = s };
    s->written_us = now_us(o);
    if (kube_start(o->client, &req, &s->call, &err) < 0) count(o, "status", "dropped", 1);
}

/* Records a condition that has become true, and a change of the number that is wanted. */
static void tell_changes(struct service_objects *o, struct seen *s, const struct service_facts *f,
                         const struct service_state before[SERVICE_CONDITION_COUNT])
{
    static const enum service_condition told[] = { SERVICE_BUDGET_REACHED, SERVICE_STOCKED_OUT };
    char note[160];
    for (size_t i = 0; i < COUNT_OF(told); i++)
        if (s->state[told[i]].truth == SERVICE_TRUE && before[told[i]].truth != SERVICE_TRUE)
            tell(o, s, true, service_condition_names[told[i]], "Scale", s->state[told[i]].message);
    if (f->decided && s->was_decided && f->desired != s->was_desired) {
        snprintf(note, sizeof note, "from %u to %u instances: %.100s", s->was_desired, f->desired,
                 f->reason ? f->reason : "");
        tell(o, s, false, "Scaled", "Scale", note);
    }
    s->was_decided = f->decided;
    s->was_desired = f->desired;
}

/* Looks at one object: conditions, events, status. */
static void look(struct service_objects *o, struct seen *s, const struct service_entry *e)
{
    struct service_facts f;
    struct service_state before[SERVICE_CONDITION_COUNT];
    service_facts_read(e ? o->control : NULL, e ? e->name : (struct str){ 0 }, &f);
    /* A new term knows less than the one before it, for a while; that is no news. */
    bool early = now_us(o) - o->begun_us < SERVICE_SETTLE_US && s->state[SERVICE_READY].since_us;
    if (f.known && !f.decided && early) return;
    memcpy(before, s->state, sizeof before);
    service_conditions(&s->verdict, &f, clock_wall_us(), s->state);
    tell_changes(o, s, &f, before);
    double attainment = attainment_of(&s->attainment, f.met, f.missed);
    if (f.known) attainment_take(&s->attainment, f.met, f.missed, now_us(o));
    write_status(o, s, &f, attainment);
}

struct telling {
    struct service_objects *o;
    const struct service_list *list;
};

/* Records an event of the fleet with the object of its service. */
static void on_fleet_event(void *ctx, const struct fleet_event *v)
{
    static const struct {
        const char *what, *reason, *action;
    } rows[] = {
        { "refused", "LaunchRefused", "Launch" },
        { "taken_away", "InstanceLost", "Replace" },
        { "at_risk", "InstanceAtRisk", "Replace" },
        { "trouble", "InstanceTrouble", "Restart" },
        { "machine_failing", "MachineFailing", "Replace" },
        { "machine_broken", "MachineBroken", "Replace" },
        { "hardware_differs", "HardwareDiffers", "Launch" },
    };
    struct telling *t = ctx;
    char note[NAME_BYTES * 2 + INTENT_WHY_BYTES + 32];
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (strcmp(rows[i].what, v->what) != 0) continue;
        for (uint32_t k = 0; k < t->list->count; k++) {
            const struct service_entry *e = &t->list->entry[k];
            const struct seen *s = find(t->o, e->object);
            if (!s || !str_eq(e->name, str_from(v->service))) continue;
            snprintf(note, sizeof note, "pool %s, offer %s: %s", v->pool,
                     v->offer[0] ? v->offer : "-", v->text);
            tell(t->o, s, true, rows[i].reason, rows[i].action, note);
        }
    }
}

static void measure(struct service_objects *o)
{
    struct object_events_counts now;
    uint32_t refused = 0;
    object_events_counts_get(o->events, &now);
    count(o, "event", "ok", (double)(now.written + now.series - o->told.written - o->told.series));
    count(o, "event", "failed", (double)(now.failed - o->told.failed));
    count(o, "event", "dropped", (double)(now.dropped - o->told.dropped));
    o->told = now;
    for (uint32_t i = 0; i < o->count; i++)
        refused += o->seen[i]->verdict.refused != NULL;
    const struct str in = STR("accepted"), out = STR("refused");
    metric_set(metric_series(o->config.metrics, CONTROL_M_OBJECTS, &in), o->count - refused);
    metric_set(metric_series(o->config.metrics, CONTROL_M_OBJECTS, &out), refused);
}

static void on_timer(void *arg)
{
    struct service_objects *o = arg;
    CLEANUP(arena_fini) struct arena arena;
    struct service_list list;
    uint64_t generation;
    arena_init(&arena, LIST_ARENA_BYTES);
    look_at(o, now_us(o) + SERVICE_LOOK_US);
    if (!o->synced || !o->config.leads(o->config.arg)) return;
    settle(o);
    read_list(o, &arena, &list, &generation);
    for (uint32_t i = 0; i < o->count; i++)
        look(o, o->seen[i], service_list_find(&list, str_from(o->seen[i]->object.meta.name)));
    struct telling telling = { o, &list };
    service_events_each(o->control, &o->events_at, on_fleet_event, &telling);
    measure(o);
}

/* ---- terms ---- */

int service_objects_begin(struct service_objects *o, struct control *control, struct err *err)
{
    if (!o) return 0;
    const struct kube_section *s = o->config.section;
    const struct kube_watch_request req = { .resource = &service_resource,
                                            .ns = s->namespace.len ? s->namespace : o->cluster->ns,
                                            .objects_max = KUBE_WATCH_OBJECTS_MAX,
                                            .on_event = on_event,
                                            .arg = o };
    o->control = control;
    o->overflow = 0;
    o->begun_us = now_us(o);
    o->events_at = UINT64_MAX; /* what happened before is not told again */
    service_events_each(control, &o->events_at, on_fleet_event, NULL);
    int rc = kube_watch_start(o->client, &req, &o->watch, err);
    if (rc == 0) look_at(o, now_us(o) + SERVICE_LOOK_US);
    return rc;
}

void service_objects_end(struct service_objects *o)
{
    if (!o || !o->control) return;
    loop_timer_clear(o->config.loop, &o->timer);
    kube_watch_stop(o->watch);
    o->watch = NULL;
    o->control = NULL;
    o->synced = false;
    while (o->count > 0)
        seen_free(o->seen[--o->count]);
    const struct str in = STR("accepted"), out = STR("refused");
    metric_set(metric_series(o->config.metrics, CONTROL_M_OBJECTS, &in), 0);
    metric_set(metric_series(o->config.metrics, CONTROL_M_OBJECTS, &out), 0);
}

static int connect_cluster(struct service_objects *o, struct err *err)
{
    const struct kube_section *s = o->config.section;
    const struct kube_source source = { .path = s->kubeconfig.len > 0 ? s->kubeconfig.data : NULL,
                                        .context = s->context,
                                        .environ = o->config.environ };
    int rc = kube_config_load(&source, &o->cluster, err);
    if (rc < 0) return rc;
    const struct kube_client_config client = { .calls_per_s = s->calls_per_s,
                                               .seed = o->config.seed,
                                               .environ = o->config.environ };
    rc = kube_client_new(o->config.loop, o->cluster, &client, &o->client, err);
    return rc < 0 ? rc : object_events_new(o->client, o->config.reporter, &o->events, err);
}

int service_objects_new(const struct service_objects_config *config, struct service_objects **ret,
                        struct err *err)
{
    CLEANUP(service_objects_freep) struct service_objects *o = calloc(1, sizeof *o);
    if (!o) return err_set(err, -ENOMEM, "no memory for the services of objects");
    o->config = *config;
    o->timer = (struct loop_timer){ .fn = on_timer, .arg = o };
    int rc = connect_cluster(o, err);
    if (rc < 0) return err_prefix(err, rc, "kubernetes.services");
    *ret = TAKE(o);
    return 0;
}

void service_objects_free(struct service_objects *o)
{
    if (!o) return;
    service_objects_end(o);
    object_events_free(o->events);
    if (o->client) kube_client_free(o->client);
    kube_config_free(o->cluster);
    free(o);
}
