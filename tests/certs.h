/* certs.h - certificates for a test, made on the spot by the openssl command.
 *
 * ca.pem signs good (localhost, good.test, 127.0.0.1), again (the same names), other (other.test
 * only), old (expired) and client; ca2.pem signs stranger (the names of good). Each has NAME.pem
 * and NAME.key.
 */
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define CERTS_GOOD "DNS:localhost,DNS:good.test,IP:127.0.0.1"

static inline bool certs_run(const char *folder, const char *command)
{
    char line[1024];
    snprintf(line, sizeof line, "cd '%s' && (%s) >>certs.log 2>&1", folder, command);
    return system(line) == 0;
}

static inline bool certs_ca(const char *folder, const char *name)
{
    char command[512];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
             "-subj /CN=%s -keyout %s.key -out %s.pem",
             name, name, name);
    return certs_run(folder, command);
}

static inline bool certs_leaf(const char *folder, const char *ca, const char *name,
                              const char *names, const char *days)
{
    char command[900];
    snprintf(command, sizeof command,
             "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=%s "
             "-keyout %s.key -out %s.csr && echo subjectAltName=%s >%s.ext && "
             "openssl x509 -req -in %s.csr -CA %s.pem -CAkey %s.key -CAcreateserial -days %s "
             "-extfile %s.ext -out %s.pem",
             name, name, name, names, name, name, ca, ca, days, name, name);
    return certs_run(folder, command);
}

/* False where there is no openssl command. */
static inline bool certs_make(const char *folder)
{
    return certs_run(folder, "openssl version") && certs_ca(folder, "ca") &&
           certs_ca(folder, "ca2") && certs_leaf(folder, "ca", "good", CERTS_GOOD, "2") &&
           certs_leaf(folder, "ca", "again", CERTS_GOOD, "2") &&
           certs_leaf(folder, "ca", "other", "DNS:other.test", "2") &&
           certs_leaf(folder, "ca", "old", CERTS_GOOD, "-1") &&
           certs_leaf(folder, "ca", "client", "DNS:client.test", "2") &&
           certs_leaf(folder, "ca2", "stranger", CERTS_GOOD, "2");
}
