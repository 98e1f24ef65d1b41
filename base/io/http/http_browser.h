/* http_browser.h - refuses requests that a page of another site makes a browser send.
 *
 * Layer: base/io (http1); pure
 * Why:   a server on loopback that asks for no key is open to every page that its user's browser
 *        shows. A page reaches it by a name of its own that resolves to 127.0.0.1 (DNS rebinding:
 *        then Host is that name), by a request to another origin (then Origin is that page's), or
 *        by a request that needs no preflight (then the content type is not JSON).
 * Where: on requests that need no key or signature; a browser adds neither by itself
 */
#pragma once
#include "base/io/http/http1.h"

/* Names and origins of this server. Borrowed. */
struct http_names {
    struct str own; /* host of the listening address */
    uint16_t port;
    const struct str *hosts; /* further names, with or without a port */
    size_t host_count;
    const struct str *origins; /* other origins whose pages may call, as browsers write them */
    size_t origin_count;
};

enum browser_fault {
    BROWSER_OK,
    BROWSER_HOST,
    BROWSER_ORIGIN,
    BROWSER_TYPE, /* of a request that is neither GET, HEAD nor OPTIONS */
    BROWSER_FAULT_COUNT
};

struct browser_fault_info {
    int status;
    const char *name;     /* label in metrics, reason in error objects */
    const char *sentence; /* for people */
};
const struct browser_fault_info *browser_fault_info(enum browser_fault fault);

/* Returns true if `host` is a loopback name, the address that we listen at, or one of `hosts`, and its
 * port is ours or left out (behind a forwarder). */
bool browser_host_is_ours(const struct http_names *n, struct str host);

/* Returns the first fault. */
enum browser_fault browser_check(const struct http_names *n, const struct http_request *req);

/* Checks host and origin but not the content type, for routes that have no body or no effect. */
enum browser_fault browser_check_site(const struct http_names *n, const struct http_request *req);

/* Returns true for a connection from this machine that no forwarder made, by its address and the headers
 * that forwarders add. */
bool browser_peer_is_local(const struct http_request *req);
