/* model_task.c - the names of tasks, and the one refusal that engine and router share. */
#include "base/wire/model_task.h"

#include <errno.h>

const char *const model_task_names[MODEL_TASK_COUNT + 1] = {
    [MODEL_GENERATE] = "generate", [MODEL_EMBED] = "embed", [MODEL_SCORE] = "score"
};

int model_task_generates(enum model_task task, struct str model, struct err *err)
{
    if (task == MODEL_GENERATE) return 0;
    return err_set(err, -EINVAL, "'" STR_FMT "' is an encoder and generates no text; it answers %s",
                   STR_ARG(model),
                   task == MODEL_EMBED ? "/v1/embeddings, /v1/score and /v1/rerank"
                                       : "/v1/score and /v1/rerank, with pairs of texts");
}
