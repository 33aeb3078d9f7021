//! Names in a lease's body that need an argument.

use crate::args::Args;
use crate::errors::Errors;
use crate::function::Function;
use crate::site::connection::without_borrow;
use crate::tokens::{is_punct, is_word, spelled, split_at_commas};
use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

/// Methods of Diesel and of a lease that take a connection.
const QUERIES: [&str; 10] = [
    "complete",
    "execute",
    "fence",
    "first",
    "get_result",
    "get_results",
    "load",
    "load_iter",
    "load_stream",
    "save_changes",
];

/// Reports a connection that the body does not have, and a `complete` that would fail.
pub(crate) fn check(args: &Args, function: &Function, errors: &mut Errors) {
    let body = function.body.stream();
    if let Some(span) = unbound_connection(&body)
        && !function.has_param("conn")
        && args.handle.as_ref().is_none_or(|handle| handle != "conn")
    {
        let pool = match &args.pool {
            Some(pool) if without_borrow(pool).into_iter().count() == 1 => spelled(pool),
            Some(pool) => format!("&{}", spelled(&without_borrow(pool))),
            None => "pool".to_owned(),
        };
        let wanted = format_args!(
            "the body of a lease has no connection, because a lease holds none: take one where the work needs it, such as \
             `let conn = &mut advisory_runtime::Pool::connection({pool}).await?;`"
        );
        errors.at(span, wanted);
    }
    if let Some(handle) = &args.handle
        && !args.has("keep")
        && function.shadows(&handle.to_string()).is_none()
        && let Some(span) = method(&body, &handle.to_string(), "complete")
    {
        let wanted = format_args!(
            "`{handle}.complete` needs a `keep`, the time for which the key stays done: add one to the attribute, such as `keep = \"24h\"`"
        );
        errors.at(span, wanted);
    }
}

/// The first `conn`, if the body uses it only as an argument of queries: `query.execute(conn)`. Any
/// other use can bind the name, and is left to the compiler.
fn unbound_connection(body: &TokenStream) -> Option<Span> {
    let (mut first, mut is_only_used) = (None, true);
    visit(body, false, &mut |span, is_argument| {
        first = first.or(Some(span));
        is_only_used &= is_argument;
    });
    first.filter(|_| is_only_used)
}

/// Visits each `conn`, with whether it is an argument of a query.
fn visit(tokens: &TokenStream, is_argument: bool, each: &mut impl FnMut(Span, bool)) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) if is_query(&tokens[..index], group) => {
                for argument in split_at_commas(group.stream()) {
                    let is_conn = without_borrow(&argument).to_string() == "conn";
                    visit(&argument, is_conn, each);
                }
            }
            TokenTree::Group(group) => visit(&group.stream(), false, each),
            token if is_word(token, "conn") => each(token.span(), is_argument),
            _ => {}
        }
    }
}

fn is_query(before: &[TokenTree], group: &Group) -> bool {
    matches!(before, [.., dot, TokenTree::Ident(method)]
        if is_punct(dot, '.') && QUERIES.iter().any(|query| method == query))
        && group.delimiter() == Delimiter::Parenthesis
}

fn method(tokens: &TokenStream, variable: &str, method: &str) -> Option<Span> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    tokens.iter().enumerate().find_map(|(index, token)| {
        if let TokenTree::Group(group) = token {
            return self::method(&group.stream(), variable, method);
        }
        let is_field = index > 0 && is_punct(&tokens[index - 1], '.');
        match &tokens[index..] {
            [receiver, dot, called, TokenTree::Group(_), ..]
                if is_word(receiver, variable) && is_punct(dot, '.') && !is_field =>
            {
                is_word(called, method).then(|| called.span())
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{method, unbound_connection};

    #[test]
    fn a_connection_that_only_queries_use_is_not_bound() {
        for (body, is_unbound) in [
            ("update.execute(conn).await", true),
            ("update.execute(&mut conn).await", true),
            (
                "if late { lease.complete(&mut *conn).await?; } Ok(())",
                true,
            ),
            ("info!(\"start\"); all.load::<Job>(conn).await", false),
            ("let mut conn = get(pool); update.execute(&mut conn)", false),
            ("db.transaction(async |conn| update.execute(conn))", false),
            (
                "if let Ok(conn) = pool.get() { update.execute(conn) }",
                false,
            ),
            ("take!(conn); update.execute(conn).await", false),
            ("use crate::db::conn; update.execute(conn).await", false),
            ("update.execute(conn()?).await", false),
            ("pool.get().await.map(conn)", false),
            ("update.execute(db).await", false),
        ] {
            let tokens = body.parse().expect("tokens");
            assert_eq!(unbound_connection(&tokens).is_some(), is_unbound, "{body}");
        }
    }

    #[test]
    fn a_call_of_the_handles_method_is_found() {
        for (body, is_found) in [
            ("if ok { lease.complete(conn).await? }", true),
            ("lease.fence(conn).await", false),
            ("self.lease.complete(conn).await", false),
            ("other.complete(conn).await", false),
        ] {
            let tokens = body.parse().expect("tokens");
            let found = method(&tokens, "lease", "complete");
            assert_eq!(found.is_some(), is_found, "{body}");
        }
    }
}
