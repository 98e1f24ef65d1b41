/* judged.h - records which arms a gate took figures of, and finds the policies of a kind that no gate
 * judges.
 *
 * A policy that is only worse than its simple alternative has no test: its figure stands in docs/, and
 * the gate names the page. That page must have a list item with the policy's name and a figure.
 */
#pragma once
#include <stdint.h>

/* Records `arm`, such as "order=fcfs fair=none", as one that figures were taken of. */
void judged_add(const char *arm);

struct judged_elsewhere {
    const char *policy; /* its name; NULL ends the list */
    const char *page;   /* "docs/systems/...md", or its gate: "tests/sim_gates/..." */
};

/* Returns how many policies of `kind` are neither judged nor described elsewhere; prints those, and
 * wrong entries of `elsewhere` (NULL: none). `kind` is the option's name, of which the part before a
 * "-" is the kind: scale-policy. Call it after the gate's last figure. */
uint32_t judged_missed(const char *kind, const struct judged_elsewhere *elsewhere);
