/* place_move.c - what the rows of both questions share: bytes of a mapping, seconds of a load. */
#include "policies/place_move.h"

#include <math.h>

void move_weigh(const struct place_move *problem, struct place_move_verdict *ret)
{
    double has[MOVE_MAX] = { 0 };
    ret->reused_bytes = ret->sent_bytes = ret->seconds = 0;
    for (uint32_t i = 0; i < problem->from_count; i++)
        if (ret->to[i] != PLACE_NONE) has[ret->to[i]] = problem->reused_bytes[i][ret->to[i]];
    for (uint32_t j = 0; j < problem->to_count; j++) {
        double missing = fmax(0, problem->needed_bytes[j] - has[j]);
        ret->reused_bytes += has[j];
        ret->sent_bytes += missing;
        ret->seconds = fmax(ret->seconds, missing / problem->bytes_s);
    }
}

double load_queue_s(const struct place_load *problem, uint32_t server)
{
    double seconds = 0;
    for (uint32_t t = 0; t < LOAD_TIER_COUNT; t++)
        seconds += problem->server[server].queued_bytes[t] / problem->bytes_s[t];
    return seconds;
}

double load_ready_s(const struct place_load *problem, uint32_t server)
{
    double own_s = problem->model_bytes / problem->bytes_s[problem->server[server].tier];
    return problem->start_s + own_s + load_queue_s(problem, server);
}

void load_least(const struct place_load *problem,
                double (*score)(const struct place_load *problem, uint32_t server),
                struct place_load_verdict *ret)
{
    struct place_load_verdict v = { .server = PLACE_NONE, .ready_s = -1, .runner_up_s = -1 };
    double least = 0, next = -1;
    for (uint32_t i = 0; i < problem->server_count; i++) {
        if (!problem->server[i].usable) continue;
        double s = score(problem, i);
        if (v.server == PLACE_NONE || s < least) {
            next = least;
            v.runner_up_s = v.ready_s;
            least = s;
            v.ready_s = load_ready_s(problem, i);
            v.server = i;
        } else if (v.runner_up_s < 0 || s < next) {
            next = s;
            v.runner_up_s = load_ready_s(problem, i);
        }
    }
    *ret = v;
}
