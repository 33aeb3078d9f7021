//! Names in a lease's body that only an argument would give a meaning, and that the compiler would report without a reason.
//!
//! The body is not parsed, so a mistake is reported only where the tokens leave no doubt: where they do, the compiler decides.

use crate::args::SiteArgs;
use crate::args::call::CallArgs;
use crate::errors::Errors;
use crate::function::{Function, mentions};
use crate::site::connection::without_borrow;
use crate::tokens::{first_span, is_punct, is_word, spelled, split_at_commas};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// The name that most bodies give to their connection, and the one that messages suggest for the handle.
pub(crate) const NAMES: [&str; 2] = ["conn", "lease"];

/// The methods of a lease's handle.
const HANDLE: [&str; 9] = [
    "complete",
    "fence",
    "holding",
    "is_current",
    "is_held",
    "lost",
    "remaining",
    "token",
    "waited",
];

/// Functions of Diesel and of a lease that take a connection.
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

/// Macros of the standard library and of `tracing`, none of which binds a name for the statements after it.
const HARMLESS: [&str; 25] = [
    "anyhow",
    "assert",
    "assert_eq",
    "assert_ne",
    "bail",
    "dbg",
    "debug",
    "debug_assert",
    "ensure",
    "eprint",
    "eprintln",
    "error",
    "format",
    "format_args",
    "info",
    "panic",
    "print",
    "println",
    "todo",
    "trace",
    "unreachable",
    "vec",
    "warn",
    "write",
    "writeln",
];

/// Reports a connection or a handle that the attribute does not give, and a `complete` that would fail.
pub(crate) fn check(site: &SiteArgs, call: &CallArgs, function: &Function, errors: &mut Errors) {
    let body = function.body.stream();
    if let Some(span) = unbound(&body, "conn", function, call.handle.as_ref()) {
        let pool = call
            .pool
            .as_ref()
            .map(|pool| spelled(&without_borrow(pool)));
        let pool = pool.unwrap_or_else(|| "pool".to_owned());
        let wanted = format_args!(
            "the body of a lease has no connection, because a lease holds none: take one from the pool where the work needs it, such as \
             `let mut conn = {pool}.get().await?;`"
        );
        errors.at(span, wanted);
    }
    if !site.has("handle")
        && let Some(span) = unbound(&body, "lease", function, None)
    {
        let wanted =
            "nothing in the body is named `lease`: write `handle = lease` in the attribute";
        errors.at(span, wanted);
    }
    if let Some(handle) = &call.handle
        && !site.has("keep")
        && let Some(span) = method(&body, handle, "complete")
        && !binds(&body, &handle.to_string(), false)
    {
        let wanted = format_args!(
            "`{handle}.complete` needs a `keep`, the time for which the key stays done: add one to the attribute, such as `keep = \"24h\"`"
        );
        errors.at(span, wanted);
    }
}

/// Where the body certainly uses this name although nothing binds it.
pub(crate) fn unbound(
    body: &TokenStream,
    name: &str,
    function: &Function,
    handle: Option<&Ident>,
) -> Option<Span> {
    let mut params = function.params.iter().flat_map(|param| &param.names);
    if params.any(|param| param == name) || handle.is_some_and(|handle| handle == name) {
        return None;
    }
    let methods: Option<&[&str]> = (name == "lease").then_some(&HANDLE);
    let span = used(body, name, methods)?;
    (!binds(body, name, true)).then_some(span)
}

/// Where the tokens use the name as a value: `&mut conn`, `conn.method()`, `query.execute(conn)`, `book(conn, …)`. Of a name with
/// `methods`, only these count.
fn used(tokens: &TokenStream, name: &str, methods: Option<&[&str]>) -> Option<Span> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let at = |index: usize, offset: isize| tokens.get(index.checked_add_signed(offset)?);
    let punct =
        |index, offset, wanted| at(index, offset).is_some_and(|token| is_punct(token, wanted));
    let calls = |index, offset, methods: &[&str]| {
        let method = at(index, offset);
        method.is_some_and(|method| methods.iter().any(|known| is_word(method, known)))
    };
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let is_query = calls(index, -1, &QUERIES);
                if let Some(argument) = argument(group, name, is_query)
                    && methods.is_none()
                {
                    return Some(argument);
                }
                if let Some(inside) = used(&group.stream(), name, methods) {
                    return Some(inside);
                }
            }
            TokenTree::Ident(word) if word == name => {
                let is_path = punct(index, -1, '.') || punct(index, -1, ':');
                let is_receiver = punct(index, 1, '.') && !punct(index, 2, '.');
                let is_borrowed = at(index, -1).is_some_and(|token| is_word(token, "mut"))
                    && punct(index, -2, '&')
                    && !is_call(at(index, 1))
                    && !punct(index, 1, ':');
                let is_used = match methods {
                    Some(methods) => {
                        is_receiver && calls(index, 2, methods) && is_call(at(index, 3))
                    }
                    None => is_receiver || is_borrowed,
                };
                if is_used && !is_path {
                    return Some(word.span());
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    None
}

/// The name as an argument of a query, or as the first of several of another function.
fn argument(group: &Group, name: &str, is_query: bool) -> Option<Span> {
    if group.delimiter() != Delimiter::Parenthesis {
        return None;
    }
    let arguments = split_at_commas(group.stream());
    let is_name = |argument: &&TokenStream| argument.to_string() == name;
    let argument = if is_query {
        arguments.iter().find(is_name)
    } else {
        arguments
            .first()
            .filter(|_| arguments.len() > 1)
            .filter(is_name)
    };
    argument.map(first_span)
}

/// Where the tokens call the method of this variable.
fn method(tokens: &TokenStream, variable: &Ident, method: &str) -> Option<Span> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let nested = tokens.iter().find_map(|token| match token {
        TokenTree::Group(group) => self::method(&group.stream(), variable, method),
        _ => None,
    });
    let mut here = (0..tokens.len()).filter_map(|index| match &tokens[index..] {
        [receiver, dot, called, arguments, ..]
            if matches!(receiver, TokenTree::Ident(word) if word == variable)
                && is_punct(dot, '.')
                && is_word(called, method)
                && is_call(Some(arguments))
                && !index
                    .checked_sub(1)
                    .is_some_and(|before| is_punct(&tokens[before], '.')) =>
        {
            Some(called.span())
        }
        _ => None,
    });
    nested.or_else(|| here.next())
}

/// Whether the tokens can bind the name: in a pattern, as an item, or in a macro. With `by_any_macro` a macro that is not known can do
/// it without naming it.
fn binds(tokens: &TokenStream, name: &str, by_any_macro: bool) -> bool {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    // The start of a possible `pattern =>`.
    let mut arm = 0;
    for (index, token) in tokens.iter().enumerate() {
        let rest = &tokens[index + 1..];
        let until = |is_end: &dyn Fn(&TokenTree) -> bool| {
            let end = rest.iter().position(is_end).unwrap_or(rest.len());
            names(&rest[..end], name)
        };
        let is_brace = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        let is_end = |token: &TokenTree| is_punct(token, ';');
        let found = match token {
            TokenTree::Ident(word) => match word.to_string().as_str() {
                "let" => until(&|token| is_punct(token, '=') || is_end(token)),
                "for" => until(&|token| is_word(token, "in") || is_brace(token)),
                "fn" | "macro_rules" => until(&|token| is_brace(token) || is_end(token)),
                "use" | "const" | "static" => until(&is_end),
                macro_name => match rest {
                    [bang, TokenTree::Group(arguments), ..] if is_punct(bang, '!') => {
                        let is_harmless = HARMLESS.contains(&macro_name);
                        !is_harmless && (by_any_macro || mentions(&arguments.stream(), name))
                    }
                    _ => false,
                },
            },
            TokenTree::Punct(punct) => match punct.as_char() {
                // The parameters of a closure.
                '|' => until(&|token| is_punct(token, '|') || is_end(token)),
                '>' if index > 0 && is_punct(&tokens[index - 1], '=') => {
                    names(&tokens[arm..index], name)
                }
                ',' | ';' => {
                    arm = index + 1;
                    false
                }
                _ => false,
            },
            TokenTree::Group(group) => {
                if is_brace(token) {
                    arm = index + 1;
                }
                binds(&group.stream(), name, by_any_macro)
            }
            TokenTree::Literal(_) => false,
        };
        if found {
            return true;
        }
    }
    false
}

/// Whether a pattern names it.
fn names(pattern: &[TokenTree], name: &str) -> bool {
    mentions(&pattern.iter().cloned().collect(), name)
}

fn is_call(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
}

#[cfg(test)]
mod tests {
    use super::{binds, method, unbound};
    use crate::attribute::Attribute;
    use crate::errors::Errors;
    use crate::function;
    use proc_macro2::{Ident, Span};

    /// Whether the function uses a name that nothing binds.
    fn is_reported(name: &str, written: &str) -> bool {
        let mut errors = Errors::default();
        let tokens = written.parse().expect("tokens");
        let function = function::parse(tokens, Attribute::Lease, &mut errors).expect("a function");
        unbound(&function.body.stream(), name, &function, None).is_some()
    }

    fn body(body: &str) -> String {
        format!("async fn f(pool: &Pool) -> QueryResult<()> {{ {body} }}")
    }

    #[test]
    fn a_connection_that_nothing_binds_is_found() {
        for uses in [
            "update.execute(conn).await",
            "RunQueryDsl::execute(update, conn).await",
            "update(&mut conn).await",
            "book(conn, 7).await",
            "conn.transaction(async |c| 7).await",
            "if late { lease.complete(conn).await?; } Ok(())",
            "info!(\"start\"); update.execute(&mut *conn).await; update(&mut conn).await",
            "for a in all { book(a) } update(&mut conn).await",
            "fn book(a: i64) { a } update(&mut conn).await",
            "all.map(|a| book(a)); update(&mut conn).await",
            "each = |a| book(a); update(&mut conn).await",
            "if count(&mut conn).await > 7 { stop() } Ok(())",
            "match a { A => update(&mut conn).await, B => Ok(()) }",
            "match a { A => update(&mut conn), B => Ok(()) }",
            "match a { A => { update(&mut conn).await } B => Ok(()) }",
        ] {
            assert!(is_reported("conn", &body(uses)), "{uses}");
        }
        let function = body("update(&mut conn).await").parse().expect("tokens");
        let function = function::parse(function, Attribute::Lease, &mut Errors::default());
        let function = function.expect("a function");
        for (handle, is_found) in [("lease", true), ("conn", false)] {
            let handle = Ident::new(handle, Span::call_site());
            let found = unbound(&function.body.stream(), "conn", &function, Some(&handle));
            assert_eq!(found.is_some(), is_found, "{handle}");
        }
    }

    #[test]
    fn a_connection_that_can_be_bound_is_left_to_the_compiler() {
        for uses in [
            "let mut conn = pool.get().await?; update(&mut conn).await",
            "let (a, mut conn) = two().await?; update(&mut conn).await",
            "if let Ok(mut conn) = pool.get().await { update(&mut conn).await }",
            "match pool.get().await { Ok(mut conn) => update(&mut conn).await, Err(e) => Err(e) }",
            "for mut conn in all { update(&mut conn).await? }",
            "db.transaction(async |conn| { update.execute(conn).await }).await",
            "db.transaction(|conn| async move { update.execute(conn).await }.scope_boxed()).await",
            "async fn g(conn: &mut C) { update.execute(conn).await } g(db).await",
            "select! { conn = pool.get() => update.execute(conn).await }",
            "take_connection!(); update.execute(conn).await",
            "update(&mut conn().await?).await",
            "update(&mut self.conn).await",
            "pool::conn.get().await",
            "use crate::db::conn; update(&mut conn).await",
            "Ok(connect(Options { conn: 7 }))",
            "pool.get().await.map(conn)",
            "match [conn] { all => send(all).await }",
        ] {
            assert!(!is_reported("conn", &body(uses)), "{uses}");
        }
        let parameter =
            "async fn f(conn: &mut C) -> QueryResult<()> { update.execute(conn).await }";
        assert!(!is_reported("conn", parameter));
    }

    #[test]
    fn a_handle_that_has_no_name_is_found() {
        assert!(is_reported("lease", &body("lease.complete(conn).await")));
        assert!(is_reported(
            "lease",
            &body("post(lease.token().get()).await")
        ));
        for other in [
            "let lease = table.acquire(conn, &request).await?; lease.fence(conn).await",
            "lease::Request::text(\"k\"); lease::lead(pool).await",
            "self.lease.token()",
            "lease.rent()",
        ] {
            assert!(!is_reported("lease", &body(other)), "{other}");
        }
    }

    #[test]
    fn a_method_of_the_handle_is_found_unless_shadowed() {
        let lease = Ident::new("lease", Span::call_site());
        let completes = |body: &str| {
            let body = body.parse().expect("tokens");
            method(&body, &lease, "complete").is_some() && !binds(&body, "lease", false)
        };
        assert!(completes("if ok { lease.complete(conn).await? }"));
        assert!(completes("take!(); lease.complete(conn).await"));
        assert!(!completes("let lease = outer; lease.complete(conn).await"));
        assert!(!completes("self.lease.complete(conn).await"));
        assert!(!completes("other.complete(conn).await"));
        assert!(!completes("lease.fence(conn).await"));
    }
}
