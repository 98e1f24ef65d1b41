/* f_kube_frame.c - feeds any bytes as the stream of a watch: the frames are the same however the stream is cut, and
 * each object of a frame is read as metadata, as a Status and as a list, or is refused with a sentence. */
#include "base/core/own.h"
#include "base/io/kube/kube_api.h"
#include "base/io/kube/kube_frame.h"
#include "tests/fuzz/fuzz.h"

struct seen {
    struct buf text;
    uint32_t frames;
};

static void on_item(void *arg, struct str object)
{
    must(object.len >= 2 && object.data[0] == '{' && object.data[object.len - 1] == '}');
    (*(uint32_t *)arg)++;
}

static void read_object(struct str object)
{
    struct kube_meta meta = { 0 };
    struct kube_status status = { 0 };
    struct err err = { 0 };
    CLEANUP(buf_fini) struct buf more = { 0 };
    char version[KUBE_VERSION_BYTES] = "";
    int64_t wanted, there;
    uint32_t items = 0;
    int rc = kube_meta_read(object, &meta, &err);
    must(rc == 0 || (rc == -EINVAL && err.text[0]));
    must(strlen(meta.name) < sizeof meta.name && strlen(meta.uid) < sizeof meta.uid);
    rc = kube_status_read(object, &status, NULL);
    if (rc == 0) {
        must(kube_status_errno(&status) < 0 && status.retry_after_s >= 0);
        must(str_utf8_valid(str_from(status.message)));
    }
    rc = kube_list_read(object, on_item, &items, version, &more, NULL);
    must(rc == 0 || rc == -EINVAL || items == 0);
    kube_scale_read(object, &wanted, &there, NULL);
}

static bool on_frame(void *arg, const struct kube_frame *frame)
{
    struct seen *s = arg;
    must(frame->object.len >= 2 && frame->object.data[0] == '{');
    buf_printf(&s->text, "%d" STR_FMT "\n", frame->type, STR_ARG(frame->object));
    s->frames++;
    return true;
}

const struct fuzz_cost fuzz_cost = { 100000, 2000 };

void fuzz_one(const uint8_t *data, size_t size)
{
    struct fuzz_choices c = { data, size };
    CLEANUP(kube_frames_fini) struct kube_frames whole = { .bytes_max = 4096 }, cut = whole;
    struct seen first = { 0 }, second = { 0 };
    struct err err = { 0 };
    size_t step = 1 + fuzz_below(&c, 64);
    struct str stream = str_of(c.data, c.len);
    int rc = kube_frames_feed(&whole, stream, on_frame, &first, &err);
    must(rc == 0 || (rc < 0 && err.text[0]));
    int cut_rc = 0;
    for (size_t at = 0; at < stream.len && cut_rc == 0; at += step) {
        size_t len = stream.len - at < step ? stream.len - at : step;
        cut_rc = kube_frames_feed(&cut, str_of(stream.data + at, len), on_frame, &second, NULL);
    }
    must(rc == cut_rc);
    must(first.frames == second.frames);
    must(str_eq(buf_view(&first.text), buf_view(&second.text)));
    for (struct str rest = buf_view(&first.text); rest.len > 0;) {
        struct str line = str_cut(&rest, '\n');
        read_object(str_of(line.data + 1, line.len - 1));
    }
    read_object(stream);
    buf_fini(&first.text);
    buf_fini(&second.text);
}
