/* openai.c - the engine kind `openai`: any server of OpenAI's API, of which nothing else is known.
 *
 * It is adopted and never started here. It has no metrics that we know, so its load is what this fleet's
 * routers have sent to it, and while it drains the agent waits for the whole drain time: absent is not
 * zero. */
#include "agent/engines/engine_driver.h"

static int take_first(struct engine_sight *s, struct str body, struct err *err)
{
    int rc = take_models(s, body, err);
    if (rc == 0) sight_report(s);
    return rc;
}

static const struct engine_ask asks[] = {
    { .path = "/v1/models", .take = take_first },
};

const struct engine_driver engine_openai = {
    .kind = ENGINE_OPENAI,
    .ask = asks,
    .ask_count = COUNT_OF(asks),
};
