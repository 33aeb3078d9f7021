//! The source of a lock site's connection.
//!
//! Types are left to the compiler: it reports at the argument, or at the parameter, a value that is
//! no connection, and a name that does not exist.

use crate::args::Args;
use crate::errors::Errors;
use crate::function::Function;
use crate::function::params::{Param, Receiver};
use crate::tokens::{first_span, is_punct, is_word, spelled};
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote;

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

pub(crate) fn find(args: &Args, function: &Function, errors: &mut Errors) -> Option<Connection> {
    if let Some(pool) = &args.pool {
        return from_pool(pool, args, function, errors);
    }
    if let Some(given) = &args.conn {
        return given_by(given, function, errors);
    }
    // The second is what the compiler suggests for a body that leaves it unused.
    for name in ["conn", "_conn"] {
        if let Some((param, root)) = parameter(function, name) {
            return place(param, root, root, TokenStream::new(), errors);
        }
    }
    // A wrong value, or a `conn` that is not a parameter, was reported.
    let is_reported = function.destructured.iter().any(|name| name == "conn");
    if !args.has("pool") && !args.has("conn") && !is_reported {
        errors.at(function.name.span(), no_connection(function));
    }
    None
}

fn from_pool(
    pool: &TokenStream,
    args: &Args,
    function: &Function,
    errors: &mut Errors,
) -> Option<Connection> {
    if let Some(span) = args.span("conn") {
        let wanted = "`pool` and `conn` both give the connection: leave one of them out";
        return errors.refuse(span, wanted);
    }
    // The body has no use for it, but another expression of the attribute can.
    if let Some((param, root)) = parameter(function, "conn")
        && param.is_mutable_reference()
        && !args.mention("conn")
    {
        let wanted = "the parameter `conn` is not the connection that holds the lock, because `pool` gives the body another `conn`: \
                      remove the parameter, or `pool` from the attribute";
        return errors.refuse(root.span(), wanted);
    }
    Some(Connection::Pool(pool.clone()))
}

fn given_by(given: &TokenStream, function: &Function, errors: &mut Errors) -> Option<Connection> {
    let bare = without_borrow(given);
    if bare.clone().into_iter().count() < given.clone().into_iter().count() && is_place(&bare) {
        let place = spelled(&bare);
        let wanted = format_args!(
            "`conn` takes a place, not a reference: write `conn = {place}`, or for a pool `pool = {place}`"
        );
        return errors.refuse(first_span(given), wanted);
    }
    let expression = || Some(Connection::Expression(given.clone()));
    let mut fields = given.clone().into_iter();
    let Some(TokenTree::Ident(root)) = fields.next().filter(|_| is_place(given)) else {
        return expression();
    };
    let fields = fields.collect();
    if root == "self" {
        return match function.receiver {
            None => expression(),
            Some(by) => borrowed(&root, &root, fields, by, errors),
        };
    }
    match parameter(function, &root.to_string()) {
        Some((param, bound)) => place(param, bound, &root, fields, errors),
        None => expression(),
    }
}

fn parameter<'f>(function: &'f Function, name: &str) -> Option<(&'f Param, &'f Ident)> {
    function.params.iter().find_map(|param| {
        let bound = param.names.iter().find(|bound| *bound == name)?;
        Some((param, bound))
    })
}

/// The place in a parameter; `at` is the name as it is written where the connection is given.
fn place(
    param: &Param,
    root: &Ident,
    at: &Ident,
    fields: TokenStream,
    errors: &mut Errors,
) -> Option<Connection> {
    let by = match (param.is_reference(), param.is_mutable_reference()) {
        (true, true) if param.is_name => Receiver::Mutable,
        (true, false) if param.is_name => Receiver::Shared,
        _ if param.is_name && param.is_mut(root) => Receiver::MutValue,
        _ => Receiver::Value,
    };
    borrowed(root, at, fields, by, errors)
}

fn borrowed(
    root: &Ident,
    at: &Ident,
    fields: TokenStream,
    by: Receiver,
    errors: &mut Errors,
) -> Option<Connection> {
    let root = root.clone();
    if by == Receiver::Shared {
        let place = spelled(&quote!(#root #fields));
        let wanted = format_args!(
            "the lock needs `{place}` to be mutable, and `{root}` is a shared reference: write `&mut` there, or for a pool `pool = {place}` \
             in the attribute"
        );
        return errors.refuse(at.span(), wanted);
    }
    Some(Connection::Place { root, fields, by })
}

/// Returns whether an expression is a place: `conn`, `self.conn`, `ctx.0`.
fn is_place(expression: &TokenStream) -> bool {
    let mut tokens = expression.clone().into_iter();
    let mut is_one = matches!(tokens.next(), Some(TokenTree::Ident(_)));
    while let Some(token) = tokens.next() {
        is_one &= is_punct(&token, '.')
            && match tokens.next() {
                Some(TokenTree::Ident(field)) => field != "await",
                Some(TokenTree::Literal(_)) => true,
                Some(TokenTree::Group(_) | TokenTree::Punct(_)) | None => false,
            };
    }
    is_one
}

/// The expression without `&`, `&mut` or `*` in front.
pub(crate) fn without_borrow(expression: &TokenStream) -> TokenStream {
    let is_sign =
        |token: &TokenTree| is_punct(token, '&') || is_punct(token, '*') || is_word(token, "mut");
    expression.clone().into_iter().skip_while(is_sign).collect()
}

fn no_connection(function: &Function) -> String {
    let ty = if function.is_blocking() {
        "PgConnection"
    } else {
        "AsyncPgConnection"
    };
    let pool = function.pool_example();
    format!(
        "`{}` has no parameter `conn`: add `conn: &mut {ty}`, or write in the attribute where the connection comes from, such as \
         `conn = db` or `pool = {pool}`",
        function.name
    )
}

#[cfg(test)]
mod tests {
    use super::is_place;
    use crate::written::messages;

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
    fn what_only_the_compiler_can_know_is_not_reported() {
        for (args, params) in [
            ("", "(conn, id): (&mut C, i64)"),
            (", pool = conn.pool", "conn: &mut Db"),
            (", pool = pool, err = |e| conn.of(e)", "conn: &mut C"),
            (", pool = \"pool\"", "id: i64"),
            (", conn = &mut connect(7)", "id: i64"),
        ] {
            let messages = messages(&format!(
                "#[advisory_lock(key = 7{args})] async fn run({params}) -> Done {{ Ok(()) }}"
            ));
            assert_eq!(messages, [""; 0], "{args} {params}");
        }
    }

    #[test]
    fn a_connection_that_the_attribute_gives_is_the_bodys_conn() {
        let wanted = "`conn` is already used in `run`: write another name, such as `handle = lock`";
        for (args, params, wanted) in [
            ("conn = at.conn", "at: &mut At", ""),
            ("conn = at.connect().await?", "at: &At", wanted),
            ("pool = pool", "pool: &Pool", wanted),
        ] {
            let messages = messages(&format!(
                "#[advisory_lock(key = 7, {args}, handle = conn)] async fn run({params}) -> Done {{ Ok(()) }}"
            ));
            assert_eq!(messages.concat(), wanted, "{args} {params}");
        }
    }
}
