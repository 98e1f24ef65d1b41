/* trace_rig.h - runs a collector of traces beside a fleet, and checks the traces that come (traces.py). */
#pragma once
#include "tests/proc/rig/rig.h"

/* The client's span in every trace of a test. */
#define TRACE_CLIENT_SPAN "00f067aa0ba902b7"
#define TRACE_HEADER_BYTES 128

/* Returns true if Python is there; otherwise it prints that it is missing. */
bool trace_can_run(void);

struct rig_process trace_collector(void);

/* Writes header lines with a traceparent of trace number `n` and a tracestate. */
void trace_header(uint32_t n, bool sampled, char ret[TRACE_HEADER_BYTES]);

/* Makes one request with further header lines, each pair separated by CRLF, on a connection of its own.
 * Returns the status, 0 when no whole head came. */
int trace_ask(uint16_t port, const char *path, const char *headers, const char *body,
              struct buf *reply);

/* Appends the bytes of such a request. */
void trace_request(const char *path, const char *headers, const char *body, struct buf *out);

/* Waits until the trace is as the scenario of traces.py says; else the test fails, with the trace. */
void trace_check(const char *scenario, uint32_t n);
