/* log_file.h - keeps the file that the log goes to within a bound: FILE, FILE.1, FILE.2, ...
 *
 * Layer:   base/io (libc)
 * Threads: any; one of them renames, the others go on writing to the file that was
 * Rules:   (1) only a regular file is turned: a pipe, a terminal and the journal keep their own
 *          (2) a file that somebody else has renamed or removed is left alone
 *          (3) no line is lost or halved: what was being written ends up in FILE.1
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define LOG_FILE_COUNT 3 /* older files that are kept beside the one being written */

/* Watches the file behind `fd` from now on; 0 bytes: never again. Before other threads log. */
void log_file_keep(int fd, uint64_t bytes_max);

/* So many bytes were written to it. Called by log.c after each line; almost always an addition. */
void log_file_wrote(size_t bytes);
