/* scale_to_zero.h - every pool at zero for the time that a fleet is down, and back as it was.
 *
 * Layer: cli
 * Why:   counts set by hand outlive the controller, so that the zeros of `muster down` must be
 *        taken back by the next `muster up`; STATE/rest.json remembers what stood there before
 */
#pragma once
#include "cli/remote.h"

/* Remembers and sets every pool to 0. A second call before scale_to_zero_end remembers nothing anew. */
int scale_to_zero_begin(const struct remote *api, struct str state, struct err *err);

/* Gives the pools back. Pools that are not configured any more are passed over. Nothing to do
 * without scale_to_zero_begin. */
int scale_to_zero_end(const struct remote *api, struct str state, struct err *err);
