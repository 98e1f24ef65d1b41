/* kube_frame.h - cuts the stream of a watch into frames: one JSON object a line, with a type and an object.
 *
 * Layer:  base/io/kube (base/core). Pure
 * Bounds: KUBE_FRAME_BYTES_MAX of one frame; each byte is looked for a line end once
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"

#define KUBE_FRAME_BYTES_MAX ((size_t)8 << 20) /* etcd takes objects of 1.5 MiB; JSON is longer */

enum kube_frame_type {
    KUBE_FRAME_ADDED,
    KUBE_FRAME_MODIFIED,
    KUBE_FRAME_DELETED,
    KUBE_FRAME_BOOKMARK, /* the object holds only a resourceVersion */
    KUBE_FRAME_ERROR,    /* the object is a Status */
    KUBE_FRAME_TYPE_COUNT
};

struct kube_frame {
    enum kube_frame_type type;
    struct str object; /* JSON; lives until the callback returns */
};

/* { 0 } is empty; kube_frames_fini frees it. */
struct kube_frames {
    struct buf part;  /* of a frame whose end has not come */
    size_t bytes_max; /* 0: KUBE_FRAME_BYTES_MAX */
};
void kube_frames_fini(struct kube_frames *f);
void kube_frames_clear(struct kube_frames *f); /* for the next stream */

/* Takes the next bytes of the stream and calls `fn` with each whole frame, until it returns false. Returns
 * 0, or -EINVAL for what is no frame, -EMSGSIZE at the bound, -ENOMEM; after a failure the stream is lost. */
int kube_frames_feed(struct kube_frames *f, struct str bytes,
                     bool (*fn)(void *arg, const struct kube_frame *frame), void *arg,
                     struct err *err);

/* Reads one line. -EINVAL. */
int kube_frame_read(struct str line, struct kube_frame *ret, struct err *err);
