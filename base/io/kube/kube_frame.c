/* kube_frame.c - finds the ends of frames and reads type and object of each.
 *
 * JSON as the API server writes it has no line end within an object, so a line is a frame. A frame that came
 * whole in one piece is read where it lies; only the parts of a frame that was cut are copied together. */
#include "base/io/kube/kube_frame.h"

#include "base/core/json.h"
#include "base/core/own.h"
#include "base/core/work.h"
#include "base/io/kube/kube_api.h"

static const char *const type_names[KUBE_FRAME_TYPE_COUNT] = {
    [KUBE_FRAME_ADDED] = "ADDED",     [KUBE_FRAME_MODIFIED] = "MODIFIED",
    [KUBE_FRAME_DELETED] = "DELETED", [KUBE_FRAME_BOOKMARK] = "BOOKMARK",
    [KUBE_FRAME_ERROR] = "ERROR",
};

void kube_frames_fini(struct kube_frames *f)
{
    buf_fini(&f->part);
}

void kube_frames_clear(struct kube_frames *f)
{
    buf_clear(&f->part);
}

static int type_of(const char *name, enum kube_frame_type *ret)
{
    for (int i = 0; i < KUBE_FRAME_TYPE_COUNT; i++) {
        if (strcmp(type_names[i], name) != 0) continue;
        *ret = (enum kube_frame_type)i;
        return 0;
    }
    return -EINVAL;
}

int kube_frame_read(struct str line, struct kube_frame *ret, struct err *err)
{
    struct json_reader r;
    struct kube_frame frame = { 0 };
    char type[16] = "";
    json_reader_init(&r, line);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "a frame of the watch");
    while (json_next(&r) == JSON_KEY) {
        int rc = 0;
        if (json_key_is(&r, "type")) {
            json_next(&r);
            rc = kube_text(&r, type, sizeof type);
        } else if (json_key_is(&r, "object")) {
            rc = frame.object.data ? -EINVAL : json_raw_value(&r, &frame.object);
        } else {
            json_skip(&r);
        }
        if (rc < 0) return json_fail(&r, err, "a frame of the watch");
    }
    if (r.token != JSON_OBJECT_END || json_next(&r) != JSON_END)
        return json_fail(&r, err, "a frame of the watch");
    if (type_of(type, &frame.type) < 0)
        return err_set(err, -EINVAL, "a frame of the watch has the unknown type \"%s\"", type);
    if (frame.object.len == 0 || frame.object.data[0] != '{')
        return err_set(err, -EINVAL, "a frame of the watch has no object");
    *ret = frame;
    return 0;
}

/* Reads one line and hands it over; *go_on becomes false when the callback wants no more. */
static int deliver(struct str line, bool (*fn)(void *arg, const struct kube_frame *frame),
                   void *arg, bool *go_on, struct err *err)
{
    struct kube_frame frame;
    if (str_trim(line).len == 0 || str_eq(line, STR("\r"))) return 0;
    int rc = kube_frame_read(line, &frame, err);
    if (rc == 0) *go_on = fn(arg, &frame);
    return rc;
}

int kube_frames_feed(struct kube_frames *f, struct str bytes,
                     bool (*fn)(void *arg, const struct kube_frame *frame), void *arg,
                     struct err *err)
{
    size_t bytes_max = f->bytes_max ? f->bytes_max : KUBE_FRAME_BYTES_MAX;
    bool go_on = true;
    f->part.max = bytes_max;
    work_add(bytes.len);
    while (bytes.len > 0 && go_on) {
        const char *end = memchr(bytes.data, '\n', bytes.len);
        size_t len = end ? (size_t)(end - bytes.data) : bytes.len;
        struct str line = str_of(bytes.data, len);
        if (f->part.len + len > bytes_max)
            return err_set(err, -EMSGSIZE, "a frame of the watch is longer than %zu bytes",
                           bytes_max);
        if (!end) return buf_str(&f->part, line);
        bytes = str_of(end + 1, bytes.len - len - 1);
        if (f->part.len > 0) {
            if (buf_str(&f->part, line) < 0)
                return err_set(err, f->part.rc, "no memory for a frame of the watch");
            /* The callback may clear the parser, so the text is taken out of it. */
            CLEANUP(buf_fini) struct buf whole = f->part;
            f->part = (struct buf){ .max = bytes_max };
            int rc = deliver(buf_view(&whole), fn, arg, &go_on, err);
            if (rc < 0) return rc;
        } else {
            int rc = deliver(line, fn, arg, &go_on, err);
            if (rc < 0) return rc;
        }
    }
    return 0;
}
