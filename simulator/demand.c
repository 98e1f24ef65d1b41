/* demand.c - what requests ask for, as the controller and the role row are told of it. */
#include "simulator/run.h"

static uint32_t service_of(const struct run *run, const struct flight *f)
{
    return run->trace->request[f->request].service;
}

void demand_arrived(struct run *run, struct flight *f)
{
    struct roles *s = &run->roles;
    double tokens = f->core.prompt_tokens;
    s->arrivals += 1;
    s->prompt += tokens;
    s->prompt2 += tokens * tokens;
    if (!run->control) return;
    f->told_prompt = f->core.prompt_tokens - f->core.hit_tokens;
    f->told_output = f->core.length.mean;
    sim_control_arrived(run->control, service_of(run, f), f->told_prompt, f->told_output,
                        run_elapsed_us(run));
}

void demand_began(struct run *run, const struct flight *f)
{
    if (!run->control) return;
    double ttft_s = (double)(f->first_us - f->arrival_us) * 1e-6;
    sim_control_began(run->control, service_of(run, f), f->told_prompt, f->told_output, ttft_s,
                      run_elapsed_us(run));
}

static void tell_end(struct run *run, const struct flight *f, enum sim_end end)
{
    if (f->generated == 0) {
        sim_control_dropped(run->control, service_of(run, f), f->told_prompt, f->told_output);
    } else if (end == SIM_COMPLETED) {
        double tpot_s = -1;
        if (f->generated > 1) {
            tpot_s = (double)(f->last_us - f->first_us) * 1e-6 / (f->generated - 1);
        }
        sim_control_ended(run->control, service_of(run, f), tpot_s, run_elapsed_us(run));
    }
}

/* Who was too long has never arrived. */
void demand_ended(struct run *run, const struct flight *f, enum sim_end end)
{
    if (run->control && end != SIM_TOO_LONG) tell_end(run, f, end);
    if (end != SIM_COMPLETED) return;
    struct roles *s = &run->roles;
    double tokens = f->generated;
    s->ends += 1;
    s->output += tokens;
    s->output2 += tokens * tokens;
}
