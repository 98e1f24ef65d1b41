/* vectors_reply.h - writes responses of /v1/embeddings, /v1/score and /v1/rerank.
 *
 * Layer:   base/wire (base/core)
 * Threads: any; a call keeps nothing
 * Errors:  sticky in out->rc
 *
 * Forms: OpenAI's of embeddings; vLLM's of scores; of rankings vLLM's, which the clients of Jina and Cohere read
 * too. Vectors have the length 1, so that a score is the cosine: their inner product.
 */
#pragma once
#include "base/core/buf.h"
#include "base/wire/openai_reply.h"

/* Scales a vector to the length 1 after cutting it to `kept` numbers. -EDOM: its length is zero or no number. */
int vector_normalise(const double *sum, uint32_t kept, float *ret);

/* Appends a vector as a JSON array of numbers that read back equal, or as a string of base64. */
void vector_render(const float *v, uint32_t count, bool base64, struct buf *out);

/* Returns the most bytes that vector_render appends. */
size_t vector_bytes(uint32_t count, bool base64);

/* Returns the cosine of two vectors of length 1: their inner product, summed in ascending order. */
double vector_cosine(const float *a, const float *b, uint32_t count);

/* Writes a response of embeddings; `vector` are rendered, in the order of the inputs. */
int embeddings_reply(const struct openai_reply *r, const struct buf *vector, uint32_t count,
                     const struct usage *usage, struct buf *out);

int scores_reply(const struct openai_reply *r, const double *score, uint32_t count,
                 const struct usage *usage, struct buf *out);

struct document_rank {
    double score;
    uint32_t index; /* of the document in the request */
};

/* Writes the q->vectors.top_n best documents of a ranking, the best first; of equal ones the earlier. Sorts
 * `ranked`. */
int ranking_reply(const struct openai_reply *r, const struct openai_request *q,
                  struct document_rank *ranked, uint32_t count, const struct usage *usage,
                  struct buf *out);
