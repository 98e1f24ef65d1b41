/* fake_azure.h - speaks Azure's Compute API over a fake fleet, with Entra's token endpoint, the metadata service's
 * tokens and the retail prices beside it.
 *
 * Layer:  tests/fakes/cloud (base/core)
 * Has:    virtual machines: create, get, delete, list of a group; their operations; tokens by secret, by federated
 *         token and of a machine. Requests with members, parameters or values that the API does not document are
 *         refused as the API does, and counted in fleet->refused_form
 * Script: FLEET_STOCK_OUT fails the operation, and its machine stays, as the provider does it; a size without stock is
 *         refused at once. FLEET_LOGIN's faults are the token endpoint's
 * Names:  unique in the group; the fleet's names_unique and keys_unique stay off
 */
#pragma once
#include "tests/fakes/cloud/fake_fleet.h"

#define FAKE_AZURE_OPERATIONS_MAX 4096
#define FAKE_AZURE_TENANT "11111111-2222-3333-4444-555555555555"
#define FAKE_AZURE_CLIENT "66666666-7777-8888-9999-000000000000"
#define FAKE_AZURE_SUBSCRIPTION "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
#define FAKE_AZURE_GROUP "fleet"
#define FAKE_AZURE_REGION "westeurope"

struct fake_azure_operation {
    int64_t done_us;
    const char *code; /* of its failure; NULL: it succeeds */
};

struct fake_azure {
    struct fake_fleet *fleet;
    const char *secret, *federated; /* NULL: not taken */
    bool on_machine;                /* the metadata service has an identity */
    const char *failure;            /* code with which each create's operation fails; NULL: none */
    bool ignores_condition;         /* PUT over what is there: custom data cannot be changed */
    bool names_strangers;           /* operations are said to be at another host */
    uint32_t page;                  /* machines of a page; 0: all */
    int64_t date_us, operation_us;
    int64_t token_us; /* how long one is good; 0: an hour */
    char token[40];
    int64_t expires_us;
    uint32_t tokens;
    uint64_t actions; /* bit i: fake_azure_actions[i] was needed */
    uint64_t denied;
    bool failed[FLEET_MACHINES_MAX]; /* by machine: it could not be provisioned */
    uint32_t operation_count;
    struct fake_azure_operation operation[FAKE_AZURE_OPERATIONS_MAX];
};

enum fake_azure_action {
    AZURE_WRITE,
    AZURE_READ,
    AZURE_DELETE,
    AZURE_SUBNET,
    AZURE_INTERFACE,
    AZURE_ADDRESS,
    AZURE_GUARD,
    AZURE_IDENTITY,
    AZURE_LOOK,
    AZURE_DEALLOCATE,
    AZURE_START,
    AZURE_ACTION_COUNT
};
extern const char *const fake_azure_actions[AZURE_ACTION_COUNT];

extern const struct cloud_fake fake_azure; /* ctx: struct fake_azure */

/* Answers the token endpoint and the metadata service; false: the request is for neither. */
bool fake_azure_login(struct fake_azure *z, const struct web_ask *ask, int64_t now_us,
                      struct arena *arena, struct web_reply *ret, const struct fleet_row **ret_row);
