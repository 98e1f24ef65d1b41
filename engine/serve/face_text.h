/* face_text.h - a body on its way to token ids, here or on a text worker.
 *
 * Layer:   engine/serve; a part of the face (face_part.h)
 * Threads: the loop's, but `make`, which reads the body, the vocabulary and the template only
 */
#pragma once
#include "base/text/token_ask.h"
#include "engine/serve/face_part.h"

/* A body on its way to ids or to a reply. */
struct prompt {
    int (*make)(struct prompt *p);  /* any thread: negative with `e` filled */
    void (*made)(struct prompt *p); /* on the loop: answers x */
    struct face *face;
    struct http_exchange *x;      /* NULL: the client has left */
    struct http_exchange *pinned; /* whose bytes a worker reads */
    struct list link;
    struct text_job job;
    struct str body;
    struct arena arena; /* what `r` points into, beside the body */
    bool entered;       /* was at a worker */
    int rc;             /* of make */
    struct openai_error e;

    /* chat and completions */
    struct openai_request r;
    struct face_id id;
    int64_t deadline_us; /* 0: none named */
    struct ids ids;

    /* /tokenize and /detokenize */
    enum token_ask_kind kind;
    struct buf out;
};

/* With make, made and what belongs to them in *with: answers in any case, at once or later. */
void prompt_begin(struct face *f, struct http_exchange *x, const struct prompt *with);
int prompt_encode(struct prompt *p); /* p->ids from p->r; negative with p->e filled */
int prompt_failed(const struct prompt *p, int rc, const struct err *err, struct openai_error *e);
struct encode_model face_encode_model(const struct face *f);
int prompts_init(struct face *f, struct err *err); /* starts the text workers */
void prompts_free(struct face *f);                 /* ends them */
