/* completion.c - prints a completion script for bash, zsh or fish.
 *
 * A script holds, for each command, its options and what each takes: nothing, one of some words (a name of the
 * table, a policy), a file, or anything else, for which nothing is offered. The scripts call no program: names
 * of policies are in them as this binary has them.
 */
#include "cli/docs/completion.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "policies/catalog.h"

#include <stdio.h>

#define ABOUT_MAX 72 /* bytes of a sentence beside an option */
#define WORDS_MAX 64 /* that one option or argument may be */
_Static_assert(WORDS_MAX >= POLICY_NAMES_MAX, "the policies of a kind fit");

/* ---- what an option takes ---- */

enum takes { TAKES_NOTHING, TAKES_WORDS, TAKES_FILE, TAKES_OTHER };

struct offer {
    enum takes takes;
    const char *word[WORDS_MAX];
    uint32_t count;
};

static void offer_words(struct offer *offer, const char *const *words)
{
    offer->takes = TAKES_WORDS;
    for (; *words; words++) {
        must(offer->count < WORDS_MAX);
        offer->word[offer->count++] = *words;
    }
}

/* Returns the kind of policy that the option names, or NULL: its sentence refers to the list of that kind, or it
 * is called as the kind is, as `route` or `scale_policy`. */
static const char *policy_kind_of(const struct config_field *f)
{
    for (size_t i = 0; policy_kinds[i]; i++) {
        char says[64];
        snprintf(says, sizeof says, "`muster policies %s`", policy_kinds[i]);
        if (strstr(f->about, says)) return policy_kinds[i];
    }
    struct str name = str_from(f->name);
    if (str_ends(name, STR("_policy"))) name.len -= strlen("_policy");
    for (size_t i = 0; policy_kinds[i]; i++)
        if (str_eq(name, str_from(policy_kinds[i]))) return policy_kinds[i];
    return NULL;
}

static struct offer offer_of(const struct config_field *f)
{
    struct offer offer = { .takes = TAKES_OTHER };
    if (f->type == CONFIG_BOOL) offer.takes = TAKES_NOTHING;
    if (f->type == CONFIG_ENUM) offer_words(&offer, f->names);
    if (f->type != CONFIG_TEXT && f->type != CONFIG_TEXTS) return offer;
    const char *kind = policy_kind_of(f);
    offer.takes = kind ? TAKES_WORDS : TAKES_FILE;
    if (kind) offer.count = policy_names(kind, offer.word);
    return offer;
}

static struct offer offer_of_argument(const struct opt_positional *row)
{
    struct offer offer = { .takes = TAKES_FILE };
    if (row->words) offer_words(&offer, row->words);
    return offer;
}

static void put_words(struct buf *out, const struct offer *offer, char between)
{
    for (uint32_t i = 0; i < offer->count; i++) {
        if (i > 0) buf_byte(out, between);
        buf_text(out, offer->word[i]);
    }
}

/* A former name is read, but nobody should type it any more. */
static bool is_former(const struct config_field *f)
{
    return str_starts(str_from(f->about), STR("Former name")) ||
           str_starts(str_from(f->about), STR("Deprecated"));
}

/* Returns the first clause of a sentence. */
static struct str short_about(struct str text)
{
    static const char *const ends[] = { ". ", "; ", ": ", " (" };
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        text.len = min_size(text.len, str_find(text, str_from(ends[i])));
    if (text.len > 0 && text.data[text.len - 1] == '.') text.len--;
    if (text.len <= ABOUT_MAX) return text;
    text.len = ABOUT_MAX;
    while (text.len > 0 && text.data[text.len] != ' ')
        text.len--;
    return text;
}

/* Returns the name behind "muster ": "plan layers". */
static const char *name_of(const struct opt_command *usage)
{
    return usage->name + strlen("muster ");
}

/* ---- shells ---- */

struct script;
struct shell {
    const char *name, *head;
    void (*begin)(struct script *s, const struct opt_command *usage, const struct command *command);
    void (*option)(struct script *s, const struct config_option *option);
    void (*argument)(struct script *s, const struct opt_positional *row, size_t at);
    void (*end)(struct script *s);
    void (*finish)(struct script *s);
};

struct script {
    const struct shell *shell;
    const struct command *const *commands;
    const char *name; /* of the command under way */
    struct buf *out;
};

static bool has_below(const struct command *const *c)
{
    return (*c)->below != NULL;
}

/* Prints "plan layers", "plan move", ... each between the two texts. */
static void put_below(struct script *s, const char *before, const char *after)
{
    for (const struct command *const *c = s->commands; *c; c++)
        for (size_t i = 0; has_below(c) && (*c)->below[i]; i++)
            buf_printf(s->out, "%s%s %s%s", before, (*c)->name, (*c)->below[i], after);
}

/* Appends text for single quotes; `escaped` characters get a backslash, and a quote becomes `quote`. */
static void put_quoted(struct buf *out, struct str text, const char *escaped, const char *quote)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '\'') {
            buf_text(out, quote);
            continue;
        }
        if (strchr(escaped, text.data[i])) buf_byte(out, '\\');
        buf_byte(out, text.data[i]);
    }
}

/* ---- bash ---- */

/* One word an option: `--spot` takes nothing, `--seed=` something, `--trace=@` a file, `--route=a,b` a word.
 * Arguments are `1=...`, `2=...`, and `*=...` for the rest. `+layers` is a command below. */
static void bash_offer(struct buf *out, const struct offer *offer)
{
    if (offer->takes == TAKES_NOTHING) return;
    buf_byte(out, '=');
    if (offer->takes == TAKES_FILE) buf_byte(out, '@');
    put_words(out, offer, ',');
}

static void bash_begin(struct script *s, const struct opt_command *usage,
                       const struct command *command)
{
    (void)usage;
    buf_printf(s->out, "    '%s')\n        spec='-h --help", s->name);
    bool below = strchr(s->name, ' ') != NULL;
    for (size_t i = 0; !below && command->below && command->below[i]; i++)
        buf_printf(s->out, "\n            +%s", command->below[i]);
}

static void bash_option(struct script *s, const struct config_option *option)
{
    struct offer offer = offer_of(option->field);
    buf_printf(s->out, "\n            %s", option->flag);
    bash_offer(s->out, &offer);
    if (!option->field->letter) return;
    buf_printf(s->out, " -%c", option->field->letter);
    bash_offer(s->out, &offer);
}

static void bash_argument(struct script *s, const struct opt_positional *row, size_t at)
{
    struct offer offer = offer_of_argument(row);
    if (row->many)
        buf_text(s->out, "\n            *");
    else
        buf_printf(s->out, "\n            %zu", at + 1);
    bash_offer(s->out, &offer);
}

static void bash_end(struct script *s)
{
    buf_text(s->out, "'\n        ;;\n");
}

static const char bash_head[] =
    "# bash completion of muster; made by `muster docs completion bash`.\n"
    "\n"
    "# Sets spec to what the command in $1 takes: --flag, --option=words, --option=@ for a file.\n"
    "_muster_spec()\n"
    "{\n"
    "    case $1 in\n";

static const char bash_tail[] =
    "    *) spec= ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "# Offers what $1 names: words between commas, or @ for files.\n"
    "_muster_offer()\n"
    "{\n"
    "    if [[ $1 == @ ]]; then\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$2\")\n"
    "    else\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"${1//,/ }\" -- \"$2\")\n"
    "    fi\n"
    "}\n"
    "\n"
    "_muster()\n"
    "{\n"
    "    local line=() word spec='' glue='' command cur='' i at=1 n=0 wanted='' found='' named=''\n"
    "    COMPREPLY=()\n"
    "    # Readline parts words at =, so --a=b comes as three.\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ $word == = && ${#line[@]} -gt 0 && ${line[-1]} == --* ]]; then\n"
    "            line[-1]+='=' glue=1\n"
    "        elif [[ $glue ]]; then\n"
    "            line[-1]+=$word glue=\n"
    "        else\n"
    "            line+=(\"$word\")\n"
    "        fi\n"
    "    done\n"
    "    [[ ${#line[@]} -gt 0 ]] || return 0\n"
    "    cur=${line[-1]}\n"
    "    unset 'line[-1]'\n"
    "    if [[ ${#line[@]} -eq 0 ]]; then\n"
    "        _muster_offer \"$_muster_commands,--help,--version\" \"$cur\"\n"
    "        return 0\n"
    "    fi\n"
    "    command=${line[0]}\n"
    "    _muster_spec \"$command\"\n"
    "    if [[ ${#line[@]} -gt 1 && \" ${spec//$'\\n'/ } \" == *\" +${line[1]} \"* ]]; then\n"
    "        command+=\" ${line[1]}\" at=2\n"
    "        _muster_spec \"$command\"\n"
    "    fi\n"
    "    local -a part\n"
    "    read -r -d '' -a part <<<\"$spec\"\n"
    "    # Arguments before the cursor, and the option whose value stands at it.\n"
    "    for ((i = at; i < ${#line[@]}; i++)); do\n"
    "        word=${line[i]} wanted=\n"
    "        if [[ $word != -?* ]]; then\n"
    "            n=$((n + 1))\n"
    "        elif [[ $word != *=* && \" ${part[*]} \" == *\" $word=\"* ]]; then\n"
    "            wanted=$word i=$((i + 1))\n"
    "        fi\n"
    "    done\n"
    "    [[ $i -gt ${#line[@]} ]] || wanted=\n"
    "    word=$cur\n"
    "    if [[ $cur == --*=* ]]; then\n"
    "        wanted=${cur%%=*} word=${cur#*=}\n"
    "    fi\n"
    "    if [[ ! $wanted && $cur == -* ]]; then\n"
    "        for i in \"${part[@]}\"; do\n"
    "            [[ $i != -* ]] || found+=,${i%%=*}\n"
    "        done\n"
    "        _muster_offer \"${found#,}\" \"$cur\"\n"
    "        return 0\n"
    "    fi\n"
    "    [[ $wanted ]] || wanted=$((n + 1))\n"
    "    for i in \"${part[@]}\"; do\n"
    "        if [[ $i == \"$wanted=\"* ]]; then\n"
    "            found=${i#*=} named=1\n"
    "        elif [[ $wanted == [0-9]* && $i == \\*=* && ! $named ]]; then\n"
    "            found=${i#*=}\n"
    "        elif [[ $i == +* && $wanted == 1 ]]; then\n"
    "            found+=,${i#+}\n"
    "        fi\n"
    "    done\n"
    "    _muster_offer \"$found\" \"$word\"\n"
    "    # Where = parts no words, the reply must hold the option too.\n"
    "    if [[ $cur == --*=* && $COMP_WORDBREAKS != *=* ]]; then\n"
    "        COMPREPLY=(\"${COMPREPLY[@]/#/$wanted=}\")\n"
    "    fi\n"
    "}\n"
    "\n"
    "complete -F _muster muster\n";

static void bash_finish(struct script *s)
{
    buf_text(s->out, bash_tail);
    buf_text(s->out, "_muster_commands=");
    for (const struct command *const *c = s->commands; *c; c++)
        buf_printf(s->out, "%s%s", c == s->commands ? "" : ",", (*c)->name);
    buf_byte(s->out, '\n');
}

/* ---- zsh ---- */

static void zsh_text(struct buf *out, struct str text)
{
    put_quoted(out, text, "[]:\\", "'\\''");
}

/* Appends what _arguments does for a value: ":NAME:(a b)". */
static void zsh_offer(struct buf *out, const struct offer *offer, const char *name)
{
    if (offer->takes == TAKES_NOTHING) return;
    buf_byte(out, ':');
    zsh_text(out, str_from(name));
    buf_byte(out, ':');
    if (offer->takes == TAKES_FILE) buf_text(out, "_files");
    if (offer->takes != TAKES_WORDS) return;
    buf_byte(out, '(');
    put_words(out, offer, ' ');
    buf_byte(out, ')');
}

static void zsh_begin(struct script *s, const struct opt_command *usage,
                      const struct command *command)
{
    (void)usage;
    buf_printf(s->out, "    '%s')\n", s->name);
    if (command->below && !strchr(s->name, ' ')) {
        buf_text(s->out, "        (( CURRENT == 2 )) && compadd --");
        for (size_t i = 0; command->below[i]; i++)
            buf_printf(s->out, " %s", command->below[i]);
        buf_byte(s->out, '\n');
    }
    buf_text(s->out, "        _arguments -s '(-h --help)'{-h,--help}'[Show the options and exit]'");
}

static void zsh_option(struct script *s, const struct config_option *option)
{
    struct offer offer = offer_of(option->field);
    const char *equals = offer.takes == TAKES_NOTHING ? "" : "=";
    char letter = option->field->letter;
    buf_text(s->out, " \\\n            '");
    /* A list may be given again and again; another option is offered once, by either of its names. */
    if (option->field->type == CONFIG_TEXTS)
        buf_byte(s->out, '*');
    else if (letter)
        buf_printf(s->out, "(-%c %s)", letter, option->flag);
    if (letter)
        buf_printf(s->out, "'{-%c%s,%s%s}'[", letter, *equals ? "+" : "", option->flag, equals);
    else
        buf_printf(s->out, "%s%s[", option->flag, equals);
    zsh_text(s->out, short_about(option->text));
    buf_byte(s->out, ']');
    zsh_offer(s->out, &offer, option->placeholder ? option->placeholder : "");
    buf_byte(s->out, '\'');
}

static void zsh_argument(struct script *s, const struct opt_positional *row, size_t at)
{
    struct offer offer = offer_of_argument(row);
    buf_text(s->out, " \\\n            '");
    if (row->many)
        buf_byte(s->out, '*');
    else
        buf_printf(s->out, "%zu", at + 1);
    if (!row->required && !row->many) buf_byte(s->out, ':');
    zsh_offer(s->out, &offer, row->name);
    buf_byte(s->out, '\'');
}

static void zsh_end(struct script *s)
{
    buf_text(s->out, "\n        ;;\n");
}

static void zsh_finish(struct script *s)
{
    buf_text(s->out, "    esac\n}\n\n_muster() {\n    local -a commands=(\n");
    for (const struct command *const *c = s->commands; *c; c++) {
        buf_printf(s->out, "        '%s:", (*c)->name);
        put_quoted(s->out, str_from((*c)->about), "\\:", "'\\''");
        buf_text(s->out, "'\n");
    }
    buf_text(s->out, "    )\n"
                     "    if (( CURRENT == 2 )); then\n"
                     "        _describe command commands\n"
                     "        return\n"
                     "    fi\n"
                     "    local command=$words[2]\n"
                     "    shift words\n"
                     "    (( CURRENT-- ))\n"
                     "    # A command below another is two words, once the second is whole.\n"
                     "    if (( CURRENT > 2 )); then\n"
                     "        case \"$words[1] $words[2]\" in\n");
    put_below(s, "        '",
              "')\n            command=\"$words[1] $words[2]\"\n            shift words\n"
              "            (( CURRENT-- )) ;;\n");
    buf_text(s->out, "        esac\n"
                     "    fi\n"
                     "    _muster_command $command\n"
                     "}\n\n"
                     "if [[ $funcstack[1] == _muster ]]; then\n"
                     "    _muster \"$@\"\n"
                     "else\n"
                     "    compdef _muster muster\n"
                     "fi\n");
}

/* ---- fish ---- */

static void fish_text(struct buf *out, struct str text)
{
    put_quoted(out, text, "\\", "\\'");
}

static void fish_is(struct script *s)
{
    buf_printf(s->out, "complete -c muster -n \"__muster_is '%s'\"", s->name);
}

static void fish_begin(struct script *s, const struct opt_command *usage,
                       const struct command *command)
{
    (void)usage;
    bool below = strchr(s->name, ' ') != NULL;
    if (!below) {
        buf_printf(s->out, "complete -c muster -n \"__muster_is ''\" -a %s -d '", command->name);
        fish_text(s->out, str_from(command->about));
        buf_text(s->out, "'\n");
    }
    for (size_t i = 0; !below && command->below && command->below[i]; i++) {
        fish_is(s);
        buf_printf(s->out, " -a %s\n", command->below[i]);
    }
    fish_is(s);
    buf_text(s->out, " -s h -l help -d 'Show the options and exit'\n");
}

static void fish_offer(struct buf *out, const struct offer *offer, bool option)
{
    if (option && offer->takes != TAKES_NOTHING) buf_text(out, " -r");
    if (offer->takes == TAKES_FILE) buf_text(out, " -F");
    if (option && (offer->takes == TAKES_WORDS || offer->takes == TAKES_OTHER))
        buf_text(out, " -f");
    if (offer->takes != TAKES_WORDS) return;
    buf_text(out, " -a '");
    put_words(out, offer, ' ');
    buf_byte(out, '\'');
}

static void fish_option(struct script *s, const struct config_option *option)
{
    struct offer offer = offer_of(option->field);
    fish_is(s);
    if (option->field->letter) buf_printf(s->out, " -s %c", option->field->letter);
    buf_printf(s->out, " -l %s", option->flag + 2);
    fish_offer(s->out, &offer, true);
    buf_text(s->out, " -d '");
    fish_text(s->out, short_about(option->text));
    buf_text(s->out, "'\n");
}

static void fish_argument(struct script *s, const struct opt_positional *row, size_t at)
{
    (void)at;
    struct offer offer = offer_of_argument(row);
    fish_is(s);
    fish_offer(s->out, &offer, false);
    buf_byte(s->out, '\n');
}

static void fish_end(struct script *s)
{
    buf_byte(s->out, '\n');
}

static const char fish_head[] =
    "# fish completion of muster; made by `muster docs completion fish`.\n"
    "\n"
    "function __muster_is -d 'Is this the command of the line?'\n"
    "    set -l line (commandline -opc)\n"
    "    set -l name \"$line[2]\"\n"
    "    if contains -- \"$line[2] $line[3]\" $__muster_below\n"
    "        set name \"$line[2] $line[3]\"\n"
    "    end\n"
    "    test \"$name\" = \"$argv[1]\"\n"
    "end\n"
    "\n"
    "complete -c muster -f\n";

static void fish_finish(struct script *s)
{
    buf_text(s->out, "set -g __muster_below");
    put_below(s, " '", "'");
    buf_byte(s->out, '\n');
}

/* ---- the whole ---- */

static const struct shell shells[] = {
    { "bash", bash_head, bash_begin, bash_option, bash_argument, bash_end, bash_finish },
    { "zsh",
      "#compdef muster\n# zsh completion of muster; made by `muster docs completion zsh`.\n\n"
      "_muster_command() {\n    case $1 in\n",
      zsh_begin, zsh_option, zsh_argument, zsh_end, zsh_finish },
    { "fish", fish_head, fish_begin, fish_option, fish_argument, fish_end, fish_finish },
};

const char *const completion_shells[] = { "bash", "zsh", "fish", NULL };

static int put_option(void *ctx, const struct config_option *option)
{
    struct script *s = ctx;
    if (!is_former(option->field)) s->shell->option(s, option);
    return s->out->rc;
}

static int put_command(void *ctx, const struct command *command, const struct opt_command *usage)
{
    struct script *s = ctx;
    s->name = name_of(usage);
    s->shell->begin(s, usage, command);
    int rc = usage->options ? config_options_each(usage->options, put_option, s) : 0;
    if (rc >= 0 && usage->section) rc = config_options_each(usage->section->record, put_option, s);
    for (size_t i = 0; i < usage->positional_count; i++)
        s->shell->argument(s, &usage->positionals[i], i);
    s->shell->end(s);
    return rc < 0 ? rc : s->out->rc;
}

int completion_script(struct str shell, const struct command *const *commands, struct buf *out,
                      struct err *err)
{
    struct script s = { .commands = commands, .out = out };
    for (size_t i = 0; i < COUNT_OF(shells); i++)
        if (str_eq(shell, str_from(shells[i].name))) s.shell = &shells[i];
    if (!s.shell)
        return err_set(err, -EINVAL, "no completion for '" STR_FMT "': want bash, zsh or fish",
                       STR_ARG(shell));
    buf_text(out, s.shell->head);
    int rc = command_usages(commands, put_command, &s);
    s.shell->finish(&s);
    return rc < 0 || out->rc < 0 ? err_set(err, rc < 0 ? rc : out->rc, "no memory for the script")
                                 : 0;
}
