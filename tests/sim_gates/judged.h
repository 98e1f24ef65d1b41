/* judged.h - every policy is held against something: which arms a gate took figures of, and which
 * policies of a kind it left out.
 *
 * A policy that is only worse than its simple alternative is no test: its figure stands in docs/,
 * and the gate names the page. The page has to have a sentence with the policy and a figure in it.
 */
#pragma once
#include <stdint.h>

/* Remembers `arm`, such as "order=fcfs fair=none", as one that figures were taken of. */
void judged_add(const char *arm);

struct judged_elsewhere {
    const char *policy; /* its name; the last: NULL */
    const char *page;   /* "docs/systems/...md"; or the gate that has it: "tests/sim_gates/..." */
};

/* How many policies of `kind` are neither judged nor told of elsewhere; prints those, and wrong
 * entries of `elsewhere` (NULL: none). The kind is that of the option, which may go on behind a "-":
 * scale-policy. To be asked once the gate is through. */
uint32_t judged_missed(const char *kind, const struct judged_elsewhere *elsewhere);
