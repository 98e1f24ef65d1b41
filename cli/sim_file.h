/* sim_file.h - a fleet's file, as far as a simulation takes it.
 *
 * Layer: cli (simulator, base/io, schema of every role)
 */
#pragma once
#include "base/core/buf.h"
#include "simulator/sim.h"

/* What the file says of rows and limits; the rows live for ever. */
int sim_file_take(const char *path, struct sim_config *c, struct err *err);

/* A line that names what is taken of the file and what is not: rows and limits of engines only where
 * the fleet has any (not of ref8000). */
int sim_file_note(const char *path, bool engines, struct buf *out, struct err *err);
