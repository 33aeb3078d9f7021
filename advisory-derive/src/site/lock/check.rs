//! Mistakes in the combination of a lock site's arguments.

use crate::args::Args;
use crate::args::choice::Isolation;
use crate::args::duration::{Duration, Wait};
use crate::errors::Errors;
use crate::function::Function;
use crate::key_pattern::KeyPattern;
use crate::site::connection::Connection;
use crate::site::keys::{SiteKey, SiteKeys};
use crate::tokens::is_punct;
use proc_macro2::{TokenStream, TokenTree};

/// Checks that arguments for a key pattern, or for a slice, come with one.
pub(crate) fn pattern_arguments(args: &Args, keys: &SiteKeys, errors: &mut Errors) {
    let has_slice = keys.patterns().any(|pattern| pattern.slice().is_some());
    let has_slice = has_slice || matches!(keys.list.as_slice(), [SiteKey::Each(_)]);
    if let Some(max) = &args.max_keys
        && !has_slice
        && !keys.list.is_empty()
    {
        errors.at(
            max.span(),
            "`max_keys` is only for a slice such as `<ids*>`: leave it out",
        );
    }
    for pattern in keys.patterns() {
        pattern.check_half(args.derivation, args.span("derivation"), errors);
    }
    let only_expressions = keys
        .list
        .iter()
        .all(|key| !matches!(key, SiteKey::Pattern(_)));
    if only_expressions && !keys.list.is_empty() {
        for name in ["derivation", "allow_ambiguous"] {
            let wanted = format_args!(
                "`{name}` needs a key pattern, and this key is an expression: write it where the key is declared"
            );
            args.refuse(name, wanted, errors);
        }
    }
}

pub(crate) fn combinations(args: &Args, errors: &mut Errors) {
    poll(args, errors);
    poll_max(args, errors);
    if args.is_session() {
        let wanted = "`isolation` needs a transaction, and `scope = \"session\"` does not begin one: \
                      leave it out";
        args.refuse("isolation", wanted, errors);
        let wanted =
            "`scope = \"session\"` is always refused inside a transaction: leave `nested` out";
        args.refuse("nested", wanted, errors);
        let wanted = "`at` needs a transaction-level lock, and `scope = \"session\"` takes none: leave \
                      `at` out";
        args.refuse("at", wanted, errors);
    }
    if !matches!(args.isolation, None | Some(Isolation::ReadCommitted)) {
        let wanted = "with a stricter `isolation`, the lock is taken before the transaction begins, which is possible only at the session's own \
                      node: leave `at` or `isolation` out";
        args.refuse("at", wanted, errors);
    }
    if args.is_shared() {
        let wanted = "`queue` admits one call at a time, and `mode = \"shared\"` several: leave \
                      `queue` out";
        args.refuse("queue", wanted, errors);
    }
}

/// Checks that a call that polls has time for more than two tries.
fn poll(args: &Args, errors: &mut Errors) {
    let wait = match &args.wait {
        Some(Wait::Never) => {
            let wanted = "`wait = \"never\"` tries only once: write a time such as `wait = \"5m\"`, or \
                          leave `poll` out";
            return args.refuse("poll", wanted, errors);
        }
        Some(Wait::For(wait)) => wait.milliseconds(),
        Some(Wait::Forever) | None => None,
    };
    let poll = args.poll.as_ref().and_then(Duration::milliseconds);
    if let (Some((wait, _)), Some((poll, _))) = (wait, poll)
        && poll >= wait
    {
        let wanted = format_args!(
            "`poll` must be shorter than `wait`: write a shorter time, such as `poll = \"{}ms\"`",
            (wait / 10).max(1)
        );
        args.refuse("poll", wanted, errors);
    }
}

fn poll_max(args: &Args, errors: &mut Errors) {
    let Some(poll) = &args.poll else {
        if !args.has("poll") {
            let wanted = "`poll_max` is the longest pause between two tries: add the first pause, such as `poll = \"250ms\"`";
            args.refuse("poll_max", wanted, errors);
        }
        return;
    };
    let longest = args.poll_max.as_ref().and_then(Duration::milliseconds);
    if let (Some((first, _)), Some((longest, _))) = (poll.milliseconds(), longest)
        && longest < first
    {
        let wanted = format_args!(
            "`poll_max` must not be shorter than `poll`: for pauses that do not grow write `poll_max = \"{}\"`",
            poll.written
        );
        args.refuse("poll_max", wanted, errors);
    }
}

/// Checks that calls wait in a queue before they take a connection.
pub(crate) fn queue(args: &Args, connection: &Connection, errors: &mut Errors) {
    if let Connection::Place { root, fields, .. } = connection {
        let wanted = format_args!(
            "with `queue` a call waits before it takes a connection, but `{root}{fields}` is already one: write where it comes \
             from, such as `pool = self.pool`"
        );
        args.refuse("queue", wanted, errors);
    }
}

/// Checks that `permits` comes with one key, and with a wait that asks for each of them.
pub(crate) fn permits(args: &Args, keys: &SiteKeys, function: &Function, errors: &mut Errors) {
    let Some(span) = args.span("permits") else {
        return;
    };
    if !args.has("poll") && !matches!(args.wait, Some(Wait::Never)) {
        let wanted = "a session cannot wait at the server for several permits at once: write \
                      `wait = \"never\"`, or add `poll = \"250ms\"`";
        errors.at(span, wanted);
    }
    if args.has("keys") {
        errors.at(span, "`permits` needs a single key: write `key = …`");
    } else if let Some(slice) = keys.patterns().find_map(KeyPattern::slice) {
        let wanted = format_args!(
            "`permits` needs a single key, and `<{}>` gives several: name a single value",
            slice.source
        );
        errors.at(span, wanted);
    }
    if args.is_shared() {
        let wanted = "a permit has one holder: leave `mode = \"shared\"` out";
        args.refuse("mode", wanted, errors);
    }
    let wanted = "a permit is taken at the node of the connection: leave `at` out";
    args.refuse("at", wanted, errors);
    let wanted = "`queue` admits one call at a time, and `permits` several: leave `queue` out";
    args.refuse("queue", wanted, errors);
    let wanted = "holders of other permits can write to the table too: leave `guards` out";
    args.refuse("guards", wanted, errors);
    if let Some(handle) = &args.handle
        && keys.give_witness(args, function)
    {
        let wanted = format_args!(
            "a permit is not exclusive, so `{handle}` has no `holding`: leave `permits` out, or call \
             a function that needs no witness"
        );
        errors.at(handle.span(), wanted);
    }
}

/// Checks that the body does not bind another connection under the name of the one that holds the
/// lock.
pub(crate) fn connection_shadowing(
    connection: &Connection,
    function: &Function,
    errors: &mut Errors,
) {
    let name = match connection {
        Connection::Place { root, fields, .. } if fields.is_empty() => root.to_string(),
        Connection::Place { .. } => return,
        Connection::Expression(_) | Connection::Pool(_) => "conn".to_owned(),
    };
    if let Some(span) = function.shadows(&name) {
        let wanted = format_args!(
            "this `{name}` is not the connection that holds the lock: remove this line, or give it another name"
        );
        errors.at(span, wanted);
    }
}

/// Checks that no format string names `self` where the body has it under another name, with
/// `conn = self.conn`: the expansion does not rename it inside of literals.
pub(crate) fn self_in_text(connection: &Connection, function: &Function, errors: &mut Errors) {
    if let Connection::Place { root, .. } = connection
        && root == "self"
        && let Some(literal) = text_with_self(function.body.stream())
    {
        let wanted = "a format string cannot capture `self` here: write `\"{}\", self` instead of `\"{self}\"`";
        errors.at(literal.span(), wanted);
    }
}

/// A literal that names `self` among the arguments of a macro, where it can be a format string.
fn text_with_self(tokens: TokenStream) -> Option<TokenTree> {
    let mut after_bang = false;
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            let mut tokens = group.stream().into_iter().filter(|_| after_bang);
            let found = tokens.find(names_self);
            if let Some(literal) = found.or_else(|| text_with_self(group.stream())) {
                return Some(literal);
            }
        }
        after_bang = is_punct(&token, '!');
    }
    None
}

fn names_self(token: &TokenTree) -> bool {
    let TokenTree::Literal(literal) = token else {
        return false;
    };
    let text = literal.to_string().replace("{{", "");
    text.contains("{self}") || text.contains("{self:")
}

#[cfg(test)]
mod tests {
    use super::text_with_self;
    use crate::written::messages;

    #[test]
    fn only_another_connection_of_the_same_name_is_reported() {
        for (args, params, body, count) in [
            ("", "conn: &mut C", "let conn = &mut *conn;", 0),
            ("", "conn: &mut C", "let other = pool.get().await?;", 0),
            (", conn = db", "db: C", "let mut db = pool.get().await?;", 1),
            (
                ", conn = db.conn",
                "db: D",
                "let mut db = pool.get().await?;",
                0,
            ),
        ] {
            let messages = messages(&format!(
                "#[advisory_lock(key = 7{args})] async fn run({params}, pool: &P) -> QueryResult<()> {{ {body} Ok(()) }}"
            ));
            assert_eq!(messages.len(), count, "{args} {body}: {messages:?}");
        }
    }

    #[test]
    fn a_text_that_names_self_is_found_among_a_macros_arguments() {
        for (body, is_found) in [
            ("info!(\"{self}\")", true),
            ("if ok { info!(\"{self:?}\") }", true),
            ("f(g(info!(\"{self}\")))", true),
            ("info!(\"{}\", self)", false),
            ("info(\"{self}\")", false),
            ("info!(\"self\")", false),
            ("info!(f(\"{self}\"))", false),
        ] {
            let tokens = body.parse().expect("tokens");
            assert_eq!(text_with_self(tokens).is_some(), is_found, "{body}");
        }
    }
}
