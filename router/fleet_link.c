/* fleet_link.c - derives identities, keys and tickets from the fleet's secret. */
#include "router/fleet_link.h"

#include <stdio.h>
#include <sys/random.h>

int fleet_link_init(struct fleet_link *l, struct str secret_file, bool send_secret, int64_t now_us,
                    struct err *err)
{
    static const char *const ids[] = { "cli/", FLEET_AGENT, NULL };
    uint64_t epoch;
    *l = (struct fleet_link){ .send_secret = send_secret };
    if (getrandom(&epoch, sizeof epoch, 0) != sizeof epoch)
        return err_set(err, -EIO, "the system gives no random bytes");
    auth_peers_init(&l->peers);
    auth_gate_init(&l->gate, &l->held, ids, epoch, now_us);
    return secret_file.len > 0 ? credentials_load(secret_file.data, &l->held, err) : 0;
}

void fleet_link_fini(struct fleet_link *l)
{
    if (l->gate.receiver.epoch) auth_peers_fini(&l->peers);
    auth_gate_fini(&l->gate);
    credentials_wipe(&l->held);
    key_file_fini(&l->scrapers);
}

int fleet_link_signer(struct fleet_link *l, struct loop *loop, struct http_client *client,
                      struct signer **ret, struct err *err)
{
    const struct signer_config config = {
        .loop = loop,
        .client = client,
        .peers = &l->peers,
        .secret = l->send_secret ? str_from(l->held.secret) : (struct str){ 0 },
    };
    return signer_new(&config, ret, err);
}

static const char *wire_name(const char *instance)
{
    return str_starts(str_from(instance), STR(FLEET_STATIC)) ? "" : instance;
}

static void find_key(const struct fleet_link *l, struct fleet_id *id)
{
    bool held = credentials_key(&l->held, str_from(id->text), &id->as.key) == 0;
    id->as.id = held ? str_from(id->text) : (struct str){ 0 };
}

void fleet_id_controller(const struct fleet_link *l, struct fleet_id *ret)
{
    snprintf(ret->text, sizeof ret->text, "router");
    find_key(l, ret);
}

void fleet_id_engine(const struct fleet_link *l, const char *instance, struct fleet_id *ret)
{
    snprintf(ret->text, sizeof ret->text, "engine/%s", wire_name(instance));
    find_key(l, ret);
}

bool fleet_ticket_make(struct fleet_link *l, const char *owner, const char *host, uint16_t port,
                       const char *reader, struct str tenant, int64_t now_us,
                       struct fleet_ticket *ret)
{
    struct fleet_id id;
    struct auth_peer peer;
    struct auth_key key;
    *ret = (struct fleet_ticket){ 0 };
    fleet_id_engine(l, owner, &id);
    if (id.as.id.len == 0) return true;
    if (!auth_peers_get(&l->peers, id.as.id, str_from(host), port, &peer)) return false;
    const struct auth_ticket t = { .owner = str_from(wire_name(owner)),
                                   .reader = str_from(reader),
                                   .epoch = peer.epoch,
                                   .until_us = now_us + peer.ahead_us + FLEET_TICKET_US,
                                   .tenant = tenant };
    if (auth_ticket_print(&t, ret->text) < 0) return false;
    if (credentials_key(&l->held, str_from(ret->text), &key) < 0) return false;
    hex_from(key.byte, sizeof key.byte, ret->key);
    return true;
}
