/* tls_rows.h - defines the configuration rows of TLS for the section of a role.
 *
 * Layer: base/io (config, tls)
 */
#pragma once
#include "base/io/config/config.h"
#include "base/io/net/tls.h"

// clang-format off
#define TLS_ROW(owner, member, file, text)                                                     \
    { .name = "tls_" #file, .type = CONFIG_TEXT,                                               \
      .offset = offsetof(owner, member) + offsetof(struct tls_section, file), .about = text }

/* The rows of a role that listens. */
#define TLS_SERVER_ROWS(owner, member)                                                         \
    TLS_ROW(owner, member, certificate,                                                        \
            "PEM file with the certificate chain, leaf first: with one, this port speaks TLS only; " \
            "read again when it changes."),                                                    \
    TLS_ROW(owner, member, key, "PEM file with its key."),                                     \
    TLS_ROW(owner, member, client_ca,                                                          \
            "PEM file with CAs: only clients that show a certificate of theirs are served.")
// clang-format on
