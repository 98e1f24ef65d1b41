/* offer_rows.h - declares the settings of an offer that all providers have: what is known of it before an instance
 * has reported.
 *
 * Layer: controller/cloud (base/io/config)
 * Use:   OFFER_PRIOR_ROWS(struct name) among the rows of that struct, which has the members named below
 */
#pragma once
#include "base/io/config/config.h"

#define OFFER_PRIOR_ROW(T, row, member, text)                                         \
    {                                                                                 \
        .name = row, .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 100, \
        .unit = "seconds", .offset = offsetof(T, member), .about = text               \
    }

#define OFFER_PRIOR_ROWS(T)                                                                      \
    { .name = "max_num_seqs",                                                                    \
      .type = CONFIG_INT,                                                                        \
      .default_text = "0",                                                                       \
      .min = 0,                                                                                  \
      .max = 4096,                                                                               \
      .unit = "requests",                                                                        \
      .offset = offsetof(T, max_num_seqs),                                                       \
      .about = "Requests that its engine runs at once, for planning before one has reported." }, \
        OFFER_PRIOR_ROW(T, "perf_step", perf_step_s,                                             \
                        "Prior of the step-time model: a step; all four 0: unknown until one "   \
                        "reports."),                                                             \
        OFFER_PRIOR_ROW(T, "perf_prefill", perf_prefill_s, "Prior: a prompt token."),            \
        OFFER_PRIOR_ROW(T, "perf_decode", perf_decode_s, "Prior: a sequence that decodes."),     \
        OFFER_PRIOR_ROW(T, "perf_read", perf_read_s, "Prior: a cached token that is read.")
