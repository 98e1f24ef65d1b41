/* kube_pod_read.c - finds in a Pod's object its place in life: what it waits for, when it became what, why it ended.
 */
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/kube/kube_pod.h"

#include <stdio.h>
#include <string.h>

#define GRACE_S_MAX 86400

static const char *const annotations[] = KUBE_NAME_ANNOTATIONS;

/* Copies the text at `path`, cut to the room that there is. */
static void read_text(struct str json, const char *path, char *ret, size_t bytes)
{
    CLEANUP(buf_fini) struct buf text = { .max = KUBE_POD_BYTES_MAX };
    ret[0] = 0;
    if (json_path_text(json, path, &text) < 0) return;
    struct str whole = buf_view(&text);
    if (whole.len >= bytes) whole.len = str_utf8_complete(str_of(whole.data, bytes - 1));
    memcpy(ret, whole.data, whole.len);
    ret[whole.len] = 0;
}

static int64_t read_time(struct str json, const char *path)
{
    char text[64];
    int64_t us = 0;
    read_text(json, path, text, sizeof text);
    return text[0] && date_parse(str_from(text), &us) == 0 ? us : 0;
}

static int read_annotation(void *ctx, struct str name, struct str value)
{
    struct listed *l = ctx;
    char *const to[] = { l->service, l->pool, l->offer };
    for (size_t i = 0; i < COUNT_OF(annotations); i++)
        if (str_eq(name, str_from(annotations[i]))) read_text(value, "", to[i], NAME_BYTES);
    return 0;
}

static int read_intent(void *ctx, struct str name, struct str value)
{
    struct kube_pod *p = ctx;
    if (!str_eq(name, STR(KUBE_DOMAIN "intent"))) return 0;
    read_text(value, "", p->listed.intent, INTENT_ID_BYTES);
    p->bound = true;
    return 0;
}

static int read_condition(void *ctx, struct str item)
{
    struct kube_pod *p = ctx;
    char type[32], status[16], reason[32];
    read_text(item, "type", type, sizeof type);
    read_text(item, "status", status, sizeof status);
    bool yes = strcmp(status, "True") == 0;
    if (strcmp(type, "PodScheduled") == 0) {
        if (yes) p->scheduled_us = read_time(item, "lastTransitionTime");
        read_text(item, "reason", reason, sizeof reason);
        if (yes || strcmp(reason, "Unschedulable") != 0) return 0;
        p->wait = KUBE_WAIT_SCHEDULE;
        read_text(item, "message", p->listed.why, sizeof p->listed.why);
    } else if (strcmp(type, "Ready") == 0 && yes) {
        p->ready_us = read_time(item, "lastTransitionTime");
    } else if (strcmp(type, "DisruptionTarget") == 0 && yes) {
        read_text(item, "message", p->listed.why, sizeof p->listed.why);
    }
    return 0;
}

static void say(struct kube_pod *p, const char *reason, struct str json, const char *path)
{
    char words[INTENT_WHY_BYTES];
    read_text(json, path, words, sizeof words);
    snprintf(p->listed.why, sizeof p->listed.why, words[0] ? "%.40s: %.140s" : "%.40s", reason,
             words);
}

static int read_container(void *ctx, struct str item)
{
    static const struct {
        const char *reason;
        enum kube_wait wait;
    } waits[] = {
        { "ErrImagePull", KUBE_WAIT_IMAGE },
        { "ImagePullBackOff", KUBE_WAIT_IMAGE },
        { "ErrImageNeverPull", KUBE_WAIT_IMAGE },
        { "InvalidImageName", KUBE_WAIT_IMAGE },
        { "ImageInspectError", KUBE_WAIT_IMAGE },
        { "CreateContainerConfigError", KUBE_WAIT_CONFIG },
        { "CreateContainerError", KUBE_WAIT_CONFIG },
        { "RunContainerError", KUBE_WAIT_CONFIG },
        { "CrashLoopBackOff", KUBE_WAIT_CONFIG }, /* of an init container that may restart */
    };
    struct kube_pod *p = ctx;
    char reason[64];
    read_text(item, "state.waiting.reason", reason, sizeof reason);
    for (size_t i = 0; reason[0] && i < COUNT_OF(waits); i++) {
        if (strcmp(reason, waits[i].reason) != 0) continue;
        p->wait = waits[i].wait;
        say(p, reason, item, "state.waiting.message");
    }
    int64_t started_us = read_time(item, "state.running.startedAt");
    p->started_us = max_i64(p->started_us, started_us);
    read_text(item, "state.terminated.reason", reason, sizeof reason);
    if (reason[0] && strcmp(reason, "Completed") != 0) {
        uint64_t code = 0;
        (void)json_path_u64(item, "state.terminated.exitCode", &code);
        snprintf(p->listed.why, sizeof p->listed.why, "%.60s (exit status %llu)", reason,
                 (unsigned long long)code);
    }
    return 0;
}

static void read_status(struct str status, struct kube_pod *p)
{
    char phase[16], reason[64];
    (void)json_path_each(status, "conditions", read_condition, p);
    (void)json_path_each(status, "initContainerStatuses", read_container, p);
    (void)json_path_each(status, "containerStatuses", read_container, p);
    read_text(status, "phase", phase, sizeof phase);
    p->listed.gone = strcmp(phase, "Failed") == 0 || strcmp(phase, "Succeeded") == 0;
    read_text(status, "reason", reason, sizeof reason);
    if (p->listed.gone && reason[0]) say(p, reason, status, "message"); /* Evicted, Preempting */
    if (p->listed.gone) p->wait = KUBE_WAIT_NONE;
}

int kube_pod_read(struct str json, struct kube_pod *ret, struct err *err)
{
    struct kube_pod p = { 0 };
    struct str metadata, status;
    struct listed *l = &p.listed;
    int rc = kube_meta_read(json, &p.meta, err);
    if (rc < 0) return rc;
    if (!p.meta.name[0] || name_copy(l->handle, sizeof l->handle, str_from(p.meta.name)) < 0)
        return err_set(err, -EINVAL, "the Pod '%s' is not of our making: so no instance is called",
                       p.meta.name);
    must(name_copy(l->intent, sizeof l->intent, str_from(l->handle)) == 0);
    must(json_path(json, "metadata", &metadata) == 0);
    (void)json_path_each_member(metadata, "annotations", read_annotation, l);
    (void)json_path_each_member(metadata, "annotations", read_intent, &p);
    l->unreadable = !l->service[0] || !l->pool[0] || !l->offer[0];
    l->created_us = read_time(metadata, "creationTimestamp");
    l->leaves_us = read_time(metadata, "deletionTimestamp");
    uint64_t grace_s = 0;
    if (json_path_u64(metadata, "deletionGracePeriodSeconds", &grace_s) == 0)
        p.grace_us = (int64_t)min_u64(grace_s, GRACE_S_MAX) * 1000000;
    read_text(json, "spec.nodeName", p.node, sizeof p.node);
    if (json_path(json, "status", &status) == 0) read_status(status, &p);
    *ret = p;
    return 0;
}

struct label {
    struct str name, value;
    bool found;
};

static int look_at_label(void *ctx, struct str name, struct str value)
{
    struct label *l = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (str_eq(name, l->name) && json_path_text(value, "", &text) == 0)
        l->found = str_eq(buf_view(&text), l->value);
    return 0;
}

bool kube_has_label(struct str json, struct str name, struct str value)
{
    struct label l = { name, value, false };
    (void)json_path_each_member(json, "metadata.labels", look_at_label, &l);
    return l.found;
}
