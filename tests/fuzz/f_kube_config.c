/* f_kube_config.c - reads any bytes as a kubeconfig, as an ExecCredential and as a time: they are accepted whole or
 * refused with a sentence, and what is accepted keeps the rules of kube_config.h. */
#include "base/core/own.h"
#include "base/io/date.h"
#include "base/io/kube/kube_api.h"
#include "base/io/kube/kube_config.h"
#include "base/io/kube/kube_exec.h"
#include "tests/fuzz/fuzz.h"

static bool is_set(const struct kube_material *m)
{
    return m->pem.len > 0 || m->path.len > 0;
}

static void read_config(struct str text, bool insecure)
{
    CLEANUP(kube_config_freep) struct kube_config *c = NULL;
    struct err err = { 0 };
    int rc = kube_config_parse(text, "dir/fuzz.yaml", (struct str){ 0 }, insecure, &c, &err);
    must((rc == 0) == (c != NULL));
    must(rc == 0 || err.text[0] != 0);
    if (!c) return;
    must(str_starts(c->server, STR("https://")) || str_starts(c->server, STR("http://")));
    must(c->ns.len > 0 && c->context.len > 0);
    must(insecure || !c->insecure);
    must(!(c->insecure && is_set(&c->ca)));
    must(is_set(&c->certificate) == is_set(&c->key));
    must(!c->exec || (!is_set(&c->key) && c->token.len == 0 && c->token_path.len == 0));
    if (c->exec) must(c->exec->argv[0][0] != 0);
}

static void read_credential(struct str text)
{
    CLEANUP(kube_credential_fini) struct kube_credential c = { 0 };
    struct err err = { 0 };
    int rc = kube_credential_read(text, STR("client.authentication.k8s.io/v1"), &c, &err);
    must(rc == 0 || (rc == -EINVAL && err.text[0] != 0));
    if (rc == 0) must(c.token.len > 0 || (c.certificate.len > 0 && c.key.len > 0));
}

static void read_time(struct str text)
{
    int64_t us = 0, again = 0;
    char printed[DATE_BYTES];
    if (date_parse(text, &us) < 0) return;
    if (us < 0 || us > 253402300799000000)
        return; /* the printed form has four digits of the year */
    date_print(us, printed);
    must(date_parse(str_from(printed), &again) == 0 && again == us);
}

const struct fuzz_cost fuzz_cost = { 300000, 2000 };

void fuzz_one(const uint8_t *data, size_t size)
{
    struct fuzz_choices c = { data, size };
    bool insecure = fuzz_below(&c, 2);
    struct str text = str_of(c.data, c.len);
    read_config(text, insecure);
    read_credential(text);
    read_time(text);
}
