/* t_gate_reference.c - checks that the serial reference engine repeats published routing figures.
 *
 * Eight instances serve Mooncake's conversation trace: each prefills 8,000 tokens a second, one prompt
 * after another, decodes 20 ms a token and has an LRU cache of 2,000 blocks of 512 tokens. */
#include "base/core/bits.h"
#include "tests/sim_gates/gate.h"

static void routing_figures_are_repeated(void **state)
{
    (void)state;
    struct gate g = gate_run("--trace mooncake-conversation.jsonl --fleet 8xref8000 --preset ref "
                             "--compare route=round_robin,prefix_affinity,shortest_ttft "
                             "--seeds 10");
    static const struct {
        const char *arm;
        double mean_s, p99_s;
    } rows[] = {
        { "route=round_robin", 3.25, 18.2 },
        { "route=prefix_affinity", 2.40, 14.8 },
        { "route=shortest_ttft", 1.37, 10.0 },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        gate_within(rows[i].arm, gate_mean(&g, rows[i].arm, "ttft_s.mean").mean, rows[i].mean_s,
                    0.10);
        gate_within(rows[i].arm, gate_mean(&g, rows[i].arm, "ttft_s.p99").mean, rows[i].p99_s,
                    0.10);
    }
    gate_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(routing_figures_are_repeated) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
