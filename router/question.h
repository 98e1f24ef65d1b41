/* question.h - asks the model how long its output will be, before the request itself is placed.
 *
 * Layer:    router
 * Threads:  the byte loop of the request
 * Lifetime: a question is a request of its own from the same pool, without a client; it and the
 *           request that asked know each other until either is over
 * Rules:    (1) a question is asked only where the predictor needs the reply (PREDICT_REPORTED), the
 *               engine takes token ids and the body is at most TEXT_INLINE_BYTES; otherwise, or at any
 *               bound, the request goes without
 *           (2) a question is routed, limited and accounted to its tenant as any request, and teaches
 *               the predictor nothing; its tokens are counted by RM_QUESTION_TOKENS
 */
#pragma once
#include "router/request.h"
#include "router/snapshot.h"

#define QUESTION_TOKENS_MAX 8   /* of the model's reply */
#define QUESTION_US_MAX 5000000 /* then the request goes without */
#define QUESTION_TEXT \
    "Before you answer: how many tokens will your answer have? Reply with one number only."

/* Returns true if the question was asked: the request arrives by itself once the reply is there. */
bool question_ask(struct request *r, const struct snapshot_model *m);

/* Ends the question `q`: the request that asked, if it still waits, arrives. */
void question_answered(struct request *q);
