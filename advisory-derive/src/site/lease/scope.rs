//! `scope = "lease"` in `#[advisory_lock]`: what to write instead.

use super::check::{needs_async, suggestion};
use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::function::Function;
use crate::tokens::{is_punct, is_word, spelled, split_at_commas};
use proc_macro2::{Span, TokenStream, TokenTree};

/// The span of a lock's `scope = "lease"`.
pub(crate) fn find(args: &TokenStream) -> Option<Span> {
    let arguments = split_at_commas(args.clone()).into_iter();
    arguments.map(Vec::from_iter).find_map(|argument| {
        let [name, equals, .., value] = argument.as_slice() else {
            return None;
        };
        let is_lease = match value {
            TokenTree::Literal(literal) => literal.to_string() == "\"lease\"",
            value => is_word(value, "lease") || is_word(value, "Lease"),
        };
        (is_word(name, "scope") && is_punct(equals, '=') && is_lease).then(|| value.span())
    })
}

/// Reports it, with the attribute that means the same.
pub(crate) fn report(span: Span, args: &TokenStream, function: &Function, errors: &mut Errors) {
    if function.is_blocking() {
        return errors.at(span, needs_async(function));
    }
    let (mut kept, mut others, mut conn) = (Vec::new(), Vec::new(), None);
    for argument in split_at_commas(args.clone()) {
        let mut tokens = argument.clone().into_iter();
        let name = tokens.next().map(|name| name.to_string());
        match name.as_deref().unwrap_or_default() {
            "scope" => {}
            "conn" => conn = Some(tokens.skip(1).collect()),
            name if Attribute::Lease.arguments().contains(&name) => {
                kept.push((name.to_owned(), spelled(&argument)));
            }
            name => others.push(format!("`{name}`")),
        }
    }
    let mut parameter = "";
    if !kept.iter().any(|(name, _)| name == "pool") {
        let pool = suggestion(conn.as_ref(), function).unwrap_or_else(|| {
            parameter = "; add a parameter `pool: &Pool<AsyncPgConnection>`";
            "pool".to_owned()
        });
        kept.push(("pool".to_owned(), format!("pool = {pool}")));
    }
    let kept: Vec<String> = kept.into_iter().map(|(_, argument)| argument).collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(". A lease has no {}", others.join(", "))
    };
    let wanted = format_args!(
        "a lease has an attribute of its own: write `use advisory_runtime::advisory_lease;` and `#[advisory_lease({})]`{parameter}{others}",
        kept.join(", ")
    );
    errors.at(span, wanted);
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn the_scope_of_a_lease_is_found_however_it_is_written() {
        for (args, is_lease) in [
            ("key = 7, scope = \"lease\"", true),
            ("scope = lease, key = 7", true),
            ("scope = Scope::Lease", true),
            ("scope = \"xact\"", false),
            ("scope = lease(7)", false),
            ("scope, lease", false),
            ("scope: \"lease\"", false),
            ("name = \"lease\"", false),
        ] {
            let tokens = args.parse().expect("tokens");
            assert_eq!(find(&tokens).is_some(), is_lease, "{args}");
        }
    }
}
