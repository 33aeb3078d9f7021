//! Where a lock site's connection comes from, and what to write if it has none.

use crate::args::SiteArgs;
use crate::args::call::CallArgs;
use crate::args::lock::LockArgs;
use crate::errors::Errors;
use crate::function::params::{Param, Receiver};
use crate::function::{Function, mentions};
use crate::tokens::{first_span, is_punct, is_word, spelled};
use proc_macro2::{Ident, Literal, Span, TokenStream, TokenTree};

/// Where the connection comes from.
pub(crate) enum Connection {
    /// A place expression, used under its own name: `conn`, `self.conn`, `ctx.db`.
    Place {
        root: Ident,
        fields: TokenStream,
        by: Receiver,
    },
    /// An expression, evaluated by the function and bound as `conn`.
    Expression(TokenStream),
    /// A pool. The function takes a connection from it, bound as `conn`.
    Pool(TokenStream),
}

impl Connection {
    /// The expression of the attribute that the body's `conn` comes from.
    pub(crate) fn source(&self) -> Option<&TokenStream> {
        match self {
            Self::Expression(source) | Self::Pool(source) => Some(source),
            Self::Place { .. } => None,
        }
    }
}

/// An expression that gives a connection, as far as its tokens show.
fn expression(expression: TokenStream, errors: &mut Errors) -> Option<Connection> {
    let mut tokens = expression.clone().into_iter();
    if let (Some(TokenTree::Literal(literal)), None) = (tokens.next(), tokens.next()) {
        let name = unquoted(&literal).unwrap_or_else(|| "db".to_owned());
        let wanted = format_args!(
            "`conn` takes a place or an expression, without quotes: write `conn = {name}`"
        );
        errors.at(literal.span(), wanted);
        return None;
    }
    let text = expression.to_string();
    if let Some(pool) = pool_of(&text)
        && !text.ends_with('?')
    {
        let span = expression
            .into_iter()
            .last()
            .map_or_else(Span::call_site, |token| token.span());
        let wanted =
            format_args!("taking a connection from a pool can fail: write `pool = {pool}`");
        errors.at(span, wanted);
        return None;
    }
    Some(Connection::Expression(expression))
}

/// A name or a place in quotes, without them.
fn unquoted(literal: &Literal) -> Option<String> {
    let text = literal.to_string();
    let name = text.trim_matches('"');
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let is_number = name.starts_with(|c: char| c.is_ascii_digit());
    (!is_number && name.chars().all(is_name)).then(|| name.to_owned())
}

/// The pool in an expression that takes a connection from one with `get`, whether or not it ends with `?`.
pub(crate) fn pool_of(taken: &str) -> Option<String> {
    let taken: String = taken.split_whitespace().collect();
    let ends = [".get().await?", ".get().await", ".get()?", ".get()"];
    let pool = ends.iter().find_map(|end| taken.strip_suffix(end));
    pool.map(str::to_owned)
}

/// The pool that `pool` gives.
pub(crate) fn pool(given: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let mut tokens = given.clone().into_iter();
    let wanted = match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Literal(literal)), None) => {
            unquoted(&literal).unwrap_or_else(|| "self.pool".to_owned())
        }
        // A `get` that is neither awaited nor can fail can return the pool.
        _ => match pool_of(&given.to_string()) {
            Some(pool)
                if !matches!(given.clone().into_iter().last(), Some(TokenTree::Group(_))) =>
            {
                pool
            }
            _ => return Some(given),
        },
    };
    let wanted = format_args!("`pool` takes the pool itself: write `pool = {wanted}`");
    errors.at(first_span(&given), wanted);
    None
}

/// The pool or the connection that the arguments give, or else the parameter `conn`.
pub(crate) fn find(
    site: &SiteArgs,
    call: &CallArgs,
    args: &LockArgs,
    function: &Function,
    errors: &mut Errors,
) -> Option<Connection> {
    if let Some(given) = call.pool.clone() {
        let pool = pool(given, errors);
        if let Some(span) = site.span("conn") {
            let wanted = "`pool` and `conn` both give the connection: leave one of them out";
            errors.at(span, wanted);
            return None;
        }
        return pool.map(Connection::Pool);
    }
    let Some(given) = args.conn.clone() else {
        // The second is what the compiler suggests for a body that leaves it unused.
        for name in ["conn", "_conn"] {
            let mut params = function.params.iter();
            if let Some(param) = params.find(|param| param.names.iter().any(|bound| bound == name))
            {
                return place(param, name, TokenStream::new(), function, errors);
            }
        }
        errors.at(function.name.span(), no_connection(function));
        return None;
    };
    if names_pool(&given) && !is_connection_param(&given, function) {
        let (span, written) = (first_span(&given), spelled(&given));
        let pool = spelled(&without_borrow(&given));
        let wanted = format_args!(
            "`{written}` is a pool, and `conn` takes a connection: write `pool = {pool}`"
        );
        errors.at(span, wanted);
        return None;
    }
    let bare = without_borrow(&given);
    if starts_with_sign(&given) && is_place(&bare) {
        let wanted = format_args!(
            "`conn` takes a place, not a reference: write `conn = {}`",
            spelled(&bare)
        );
        errors.at(first_span(&given), wanted);
        return None;
    }
    let mut tokens = given.clone().into_iter();
    let first = tokens.next();
    let fields: TokenStream = tokens.collect();
    let Some(TokenTree::Ident(root)) = first.filter(|_| is_fields(&fields)) else {
        return expression(given, errors);
    };
    if root == "self" {
        let Some(by) = function.receiver else {
            errors.at(
                root.span(),
                format_args!("`{}` has no `self`", function.name),
            );
            return None;
        };
        if by == Receiver::Shared {
            let place = spelled(&given);
            errors.at(
                root.span(),
                format_args!(
                    "`{place}` cannot be borrowed mutably through `&self`: if it is a pool, write `pool = {place}`; if it is a \
                     connection, write `&mut self`"
                ),
            );
            return None;
        }
        return Some(Connection::Place { root, fields, by });
    }
    let name = root.to_string();
    let param = function
        .params
        .iter()
        .find(|param| param.names.iter().any(|bound| *bound == name));
    let Some(param) = param else {
        let known = function
            .params
            .iter()
            .flat_map(|param| &param.names)
            .map(Ident::to_string)
            .collect::<Vec<_>>();
        let hint = advisory_pattern::closest(&name, known.iter().map(String::as_str)).map_or_else(
            || "name a parameter, or write an expression that gives a connection".to_owned(),
            |close| format!("did you mean `{close}`?"),
        );
        errors.at(
            root.span(),
            format_args!("`{name}` is not a parameter of `{}`: {hint}", function.name),
        );
        return None;
    };
    place(param, &name, fields, function, errors)
}

fn place(
    param: &Param,
    name: &str,
    fields: TokenStream,
    function: &Function,
    errors: &mut Errors,
) -> Option<Connection> {
    let root = param.names.iter().find(|bound| *bound == name)?.clone();
    if !function.is_blocking() && fields.is_empty() && mentions(&param.ty, "PgConnection") {
        let wanted = format_args!(
            "`{}` is `async`, but its connection is blocking: write `{name}: &mut AsyncPgConnection`, or `fn {}`",
            function.name, function.name
        );
        errors.at(root.span(), wanted);
        return None;
    }
    let by = match (param.is_reference(), param.is_mutable_reference()) {
        _ if fields.is_empty() && param.is_pool() => {
            let wanted = format_args!("`{name}` is a pool: write `pool = {name}` in the attribute");
            errors.at(root.span(), wanted);
            return None;
        }
        (true, false) => {
            errors.at(
                root.span(),
                wanted_of_shared(param, name, &root_and_fields(&root, &fields)),
            );
            return None;
        }
        (true, true) if param.is_name => Receiver::Mutable,
        _ if param.is_name && param.is_mut(&root) => Receiver::MutValue,
        _ => Receiver::Value,
    };
    Some(Connection::Place { root, fields, by })
}

/// What to write instead of a shared reference, whose type can be the alias of a pool.
fn wanted_of_shared(param: &Param, name: &str, place: &str) -> String {
    let ty = spelled(&without_borrow(&param.ty));
    let is_connection = ["AsyncPgConnection", "PgConnection", "PooledConnection"]
        .iter()
        .any(|known| mentions(&param.ty, known));
    if is_connection {
        return format!("the lock needs `{name}` to be mutable: write `{name}: &mut {ty}`");
    }
    format!(
        "the lock needs a mutable connection, and `{name}` is a shared reference: if `{place}` is a pool, write `pool = {place}` in the \
         attribute; if it is a connection, write `{name}: &mut {ty}`"
    )
}

fn root_and_fields(root: &Ident, fields: &TokenStream) -> String {
    let mut place = TokenStream::from(TokenTree::from(root.clone()));
    place.extend(fields.clone());
    spelled(&place)
}

/// Whether an expression is a place: `conn`, `self.conn`, `ctx.db`.
pub(crate) fn is_place(expression: &TokenStream) -> bool {
    let mut tokens = expression.clone().into_iter();
    matches!(tokens.next(), Some(TokenTree::Ident(_))) && is_fields(&tokens.collect())
}

/// Whether an expression is a place, or a borrow of one, with the name of a pool: `&self.pool`.
pub(crate) fn names_pool(expression: &TokenStream) -> bool {
    let place = without_borrow(expression);
    let last = place.clone().into_iter().last();
    is_place(&place) && last.is_some_and(|last| last.to_string().to_lowercase().ends_with("pool"))
}

/// Whether an expression is a parameter whose type is not that of a pool, whatever its name is.
fn is_connection_param(expression: &TokenStream, function: &Function) -> bool {
    let name = expression.to_string();
    let mut params = function.params.iter();
    let param = params.find(|param| param.names.iter().any(|bound| *bound == name));
    param.is_some_and(|param| !param.is_pool())
}

fn starts_with_sign(expression: &TokenStream) -> bool {
    let first = expression.clone().into_iter().next();
    first.is_some_and(|first| is_punct(&first, '&') || is_punct(&first, '*'))
}

/// The expression without `&`, `&mut` or `*` in front.
pub(crate) fn without_borrow(expression: &TokenStream) -> TokenStream {
    let is_sign =
        |token: &TokenTree| is_punct(token, '&') || is_punct(token, '*') || is_word(token, "mut");
    expression.clone().into_iter().skip_while(is_sign).collect()
}

/// Whether the tokens can follow the root of a place expression: nothing, or `.name.0…`.
fn is_fields(tokens: &TokenStream) -> bool {
    let mut wants_dot = true;
    let mut last_was_dot = false;
    for token in tokens.clone() {
        let fits = match &token {
            TokenTree::Punct(punct) => wants_dot && punct.as_char() == '.',
            TokenTree::Ident(ident) => !wants_dot && ident != "await",
            TokenTree::Literal(_) => !wants_dot,
            TokenTree::Group(_) => false,
        };
        if !fits {
            return false;
        }
        last_was_dot = wants_dot;
        wants_dot = !wants_dot;
    }
    !last_was_dot
}

/// The argument for a connection that the body takes.
pub(crate) fn argument_for(taken: &str) -> String {
    match pool_of(taken) {
        Some(pool) => format!("pool = {pool}"),
        None => format!("conn = {taken}"),
    }
}

/// The pool from which the body takes a connection: `self.db` of `self.db.get()`.
fn pool_in(body: &TokenStream) -> Option<String> {
    let tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    let get = tokens.windows(3).position(|call| {
        let is_call = matches!(&call[2], TokenTree::Group(group) if group.stream().is_empty());
        is_punct(&call[0], '.') && is_word(&call[1], "get") && is_call
    });
    let Some(get) = get else {
        let mut groups = tokens.iter();
        return groups.find_map(|token| match token {
            TokenTree::Group(group) => pool_in(&group.stream()),
            _ => None,
        });
    };
    let is_of_place = |token: &&TokenTree| match token {
        TokenTree::Ident(word) => word != "mut" && word != "return",
        TokenTree::Punct(punct) => punct.as_char() == '.',
        TokenTree::Group(_) | TokenTree::Literal(_) => false,
    };
    let before = tokens[..get].iter().rev().take_while(is_of_place).count();
    let place: TokenStream = tokens[get - before..get].iter().cloned().collect();
    is_place(&place).then(|| spelled(&place))
}

fn no_connection(function: &Function) -> String {
    let name = &function.name;
    if let Some(binding) = function.body_binding("conn") {
        let from = binding.value;
        let wanted = argument_for(&from);
        return format!(
            "the lock needs the connection before the body runs: write `{wanted}` in the attribute, and remove `let … \
             conn = {from};` from `{name}`"
        );
    }
    let candidate = function.params.iter().find(|param| {
        let ty = param.ty.to_string();
        !param.is_pool() && (ty.contains("Connection") || ty.contains("Object"))
    });
    if let Some(param) = candidate.and_then(|param| param.names.first()) {
        return format!(
            "`{name}` has no parameter `conn`: write `conn = {param}` in the attribute"
        );
    }
    let pool = function.params.iter().find(|param| param.is_pool());
    if let Some(pool) = pool.and_then(|param| param.names.first()) {
        return format!("`{name}` has no parameter `conn`: write `pool = {pool}` in the attribute");
    }
    let ty = if function.is_blocking() {
        "PgConnection"
    } else {
        "AsyncPgConnection"
    };
    let pool = pool_in(&function.body.stream()).unwrap_or_else(|| {
        let of = if function.receiver.is_some() {
            "self.pool"
        } else {
            "pool"
        };
        of.to_owned()
    });
    format!(
        "`{name}` has no connection: add a parameter `conn: &mut {ty}`, or write in the attribute where it comes from, such \
         as `pool = {pool}`"
    )
}

#[cfg(test)]
mod tests {
    use super::{is_place, names_pool, unquoted};
    use crate::written::messages;
    use proc_macro2::Literal;

    /// The only message for a lock on `async fn run` with these arguments, parameters and body.
    fn message(args: &str, params: &str, body: &str) -> String {
        let source = format!(
            "#[advisory_lock(key = 7{args})] async fn run({params}) -> QueryResult<()> {{ {body} }}"
        );
        let mut messages = messages(&source);
        assert!(messages.len() <= 1, "{source}: {messages:?}");
        messages.pop().unwrap_or_default()
    }

    /// The arguments, the parameters and the message of each lock.
    fn assert_messages(locks: &[(&str, &str, &str)]) {
        for (args, params, wanted) in locks {
            assert_eq!(message(args, params, "Ok(())"), *wanted, "{args} {params}");
        }
    }

    #[test]
    fn a_connection_that_the_attribute_gives_is_the_bodys_conn() {
        let wanted = "`conn` is already used in `run`: write another name, such as `handle = lock`";
        for (args, params, wanted) in [
            (", conn = at.conn, handle = conn", "at: &mut At", ""),
            (
                ", conn = at.connect().await?, handle = conn",
                "at: &At",
                wanted,
            ),
            (", pool = pool, handle = conn", "pool: &Pool", wanted),
        ] {
            assert_eq!(message(args, params, "Ok(())"), wanted, "{args} {params}");
        }
    }

    #[test]
    fn a_place_has_names_and_numbers_between_its_dots() {
        for (written, is_one) in [
            ("conn", true),
            ("self.conn", true),
            ("ctx.0.db", true),
            ("self.conn.", false),
            ("self.conn()", false),
            ("self..conn", false),
            ("self conn", false),
            ("self.connect.await", false),
            ("self 0", false),
            ("self::conn", false),
            ("self + conn", false),
            ("7", false),
            ("(conn)", false),
            ("", false),
        ] {
            let tokens = written.parse().expect("tokens");
            assert_eq!(is_place(&tokens), is_one, "{written}");
        }
    }

    #[test]
    fn a_pool_is_known_by_the_last_name_of_its_place() {
        for (written, is_one) in [
            ("pool", true),
            ("&self.db_pool", true),
            ("*DbPool", true),
            ("self.pool.get()", false),
            ("self.pool()", false),
            ("pool.conn", false),
            ("pools", false),
        ] {
            let tokens = written.parse().expect("tokens");
            assert_eq!(names_pool(&tokens), is_one, "{written}");
        }
    }

    #[test]
    fn a_place_in_quotes_is_one_without_them() {
        for (written, place) in [
            ("\"db\"", Some("db")),
            ("\"self.db_2\"", Some("self.db_2")),
            ("\"a b\"", None),
            ("\"2\"", None),
            ("7", None),
        ] {
            let literal: Literal = written.parse().expect("a literal");
            assert_eq!(unquoted(&literal).as_deref(), place, "{written}");
        }
    }

    #[test]
    fn the_pool_of_the_body_is_suggested() {
        let suggested = |body: &str| {
            let message = message("", "id: i64", body);
            let (before, pool) = message.rsplit_once("such as ").expect("a suggestion");
            assert!(before.starts_with("`run` has no connection"), "{message}");
            pool.to_owned()
        };
        for (body, wanted) in [
            ("", "pool"),
            ("let mut c = self_pool.get().await?; Ok(())", "self_pool"),
            ("if id > 7 { state.db.get().await?; } Ok(())", "state.db"),
            ("update(&mut state.db.get().await?).await", "state.db"),
            ("return state.db.get();", "state.db"),
            ("&mut state.db.get()", "state.db"),
            ("map.get(id); Ok(())", "pool"),
            ("make().get(); Ok(())", "pool"),
            ("cell.get; Ok(())", "pool"),
            ("cell.set(); Ok(())", "pool"),
            ("cell::get(); Ok(())", "pool"),
        ] {
            assert_eq!(suggested(body), format!("`pool = {wanted}`"), "{body}");
        }
    }

    #[test]
    fn a_connection_that_is_not_one_has_its_message() {
        assert_messages(&[
            ("", "conn: &mut C", ""),
            ("", "mut conn: C", ""),
            ("", "(conn, id): (&mut C, i64)", ""),
            ("", "_conn: &mut C", ""),
            (
                "",
                "conn: &DbPool",
                "`conn` is a pool: write `pool = conn` in the attribute",
            ),
            (
                "",
                "conn: DbPool",
                "`conn` is a pool: write `pool = conn` in the attribute",
            ),
            (
                ", conn = db.pool",
                "db: &mut Db",
                "`db.pool` is a pool, and `conn` takes a connection: write `pool = db.pool`",
            ),
            (
                ", conn = &pool",
                "pool: &DbPool",
                "`&pool` is a pool, and `conn` takes a connection: write `pool = pool`",
            ),
            (", conn = pool", "pool: &mut AsyncPgConnection", ""),
            (", conn = state.db", "state: &mut StatePool", ""),
            (
                "",
                "conn: &PooledConnection<'_, C>",
                "the lock needs `conn` to be mutable: write `conn: &mut PooledConnection<'_ , C>`",
            ),
            (
                ", conn = state.db",
                "state: &State",
                "the lock needs a mutable connection, and `state` is a shared reference: if `state.db` is a pool, write \
                 `pool = state.db` in the attribute; if it is a connection, write `state: &mut State`",
            ),
            (
                ", conn = &mut db",
                "db: C",
                "`conn` takes a place, not a reference: write `conn = db`",
            ),
            (
                ", conn = *state.db",
                "state: &mut S",
                "`conn` takes a place, not a reference: write `conn = state.db`",
            ),
            (
                ", conn = \"2\"",
                "db: C",
                "`conn` takes a place or an expression, without quotes: write `conn = db`",
            ),
            (
                ", conn = state.get().await",
                "state: &S",
                "taking a connection from a pool can fail: write `pool = state`",
            ),
            (", conn = state.get().await?", "state: &S", ""),
            (", conn = connect(7)", "state: &S", ""),
            (
                ", pool = state.get().await",
                "state: &S",
                "`pool` takes the pool itself: write `pool = state`",
            ),
            (
                ", pool = state.get()?",
                "state: &S",
                "`pool` takes the pool itself: write `pool = state`",
            ),
            (", pool = state.get()", "state: &S", ""),
            (
                ", pool = 7",
                "state: &S",
                "`pool` takes the pool itself: write `pool = self.pool`",
            ),
        ]);
    }

    #[test]
    fn a_connection_that_is_elsewhere_has_its_message() {
        assert_messages(&[
            (", conn = self.db", "id: i64", "`run` has no `self`"),
            (
                ", conn = dbb.c",
                "db: &mut Db",
                "`dbb` is not a parameter of `run`: did you mean `db`?",
            ),
            (
                "",
                "conn: &mut PgConnection",
                "`run` is `async`, but its connection is blocking: write `conn: &mut AsyncPgConnection`, or `fn run`",
            ),
            (
                "",
                "db: &mut PgConnection",
                "`run` has no parameter `conn`: write `conn = db` in the attribute",
            ),
            (
                "",
                "db: Object",
                "`run` has no parameter `conn`: write `conn = db` in the attribute",
            ),
            (
                "",
                "db: &PgPool, id: i64",
                "`run` has no parameter `conn`: write `pool = db` in the attribute",
            ),
            (
                "",
                "db: &Pool<AsyncPgConnection>",
                "`run` has no parameter `conn`: write `pool = db` in the attribute",
            ),
        ]);
    }
}
