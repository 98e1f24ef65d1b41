/* banned.h - forbids libc functions, and names their replacements.
 *
 * Layer: base/core (nothing)
 * Use:   tests/lint/banned.sh reads the names from these lines and refuses a call of any of them in
 *        the whole tree. Including the header everywhere was rejected: a poisoned name breaks every
 *        libc header that is included later. A file that wants the compiler to check it may include
 *        this header last.
 */
#pragma once

#pragma GCC poison strcpy strcat sprintf vsprintf gets /* no bound: buf_printf, snprintf, memcpy */
#pragma GCC poison strncpy strncat                     /* may leave no NUL: memcpy, struct str */
#pragma GCC poison strtok                              /* hidden state: str_cut */
#pragma GCC poison atoi atol atoll atof                /* no errors: str_to_i64, str_to_f64 */
#pragma GCC poison gmtime localtime ctime asctime      /* one static buffer: gmtime_r */
#pragma GCC poison rand srand drand48                  /* one hidden stream: struct rng */
#pragma GCC poison setlocale                           /* would change the decimal point */
#pragma GCC poison system popen                        /* a shell between us and argv: proc.h */
