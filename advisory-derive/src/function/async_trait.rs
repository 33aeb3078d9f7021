//! The function that `#[async_trait]` generates from an `async fn`: it returns
//! `Box::pin(async move { … })`.
//!
//! `#[async_trait]` is on the `impl`, so it expands before the attributes on the functions.

use super::params;
use crate::tokens::{is_punct, is_word, regrouped};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::quote_spanned;
use syn::{GenericArgument, PathArguments, Type, TypeParamBound};

/// The future's output and body, if the function has that form.
pub(crate) fn future(output: &TokenStream, body: &Group) -> Option<(Type, Group)> {
    let pin = syn::parse2(output.clone()).ok()?;
    let Type::TraitObject(object) = argument(argument(&pin, "Pin")?, "Box")? else {
        return None;
    };
    let future = object.bounds.iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => bound
            .path
            .segments
            .last()
            .filter(|last| last.ident == "Future"),
        _ => None,
    })?;
    let PathArguments::AngleBracketed(arguments) = &future.arguments else {
        return None;
    };
    let output = arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(output) if output.ident == "Output" => Some(output.ty.clone()),
        _ => None,
    })?;
    Some((output, async_block(body)?))
}

fn argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(ty) = ty else { return None };
    let last = ty.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

fn async_block(body: &Group) -> Option<Group> {
    let group = |token: TokenTree, delimiter| match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    };
    let arguments = group(body.stream().into_iter().last()?, Delimiter::Parenthesis)?;
    let mut tokens = arguments.stream().into_iter();
    let is_async = matches!(tokens.next()?, TokenTree::Ident(word) if word == "async");
    let block = group(tokens.last()?, Delimiter::Brace)?;
    is_async.then_some(block)
}

/// The body without the compiler's warning about a parameter that only the lock uses:
/// `#[async_trait]` binds every parameter once more, by `let user = user;`.
pub(crate) fn allow_unused(body: &Group, is_used: impl Fn(&Ident) -> bool) -> Group {
    let mut tokens = body.stream().into_iter().peekable();
    let mut output = TokenStream::new();
    while let Some(token) = tokens.next() {
        if !is_word(&token, "let") {
            output.extend([token]);
            continue;
        }
        let mut statement = vec![token];
        while let Some(token) = tokens.next_if(|token| !is_punct(token, ';')) {
            statement.push(token);
        }
        let binding = statement.iter().skip(1);
        let binding: Vec<_> = binding.filter(|token| !is_word(token, "mut")).collect();
        if let [TokenTree::Ident(name), equals, TokenTree::Ident(value)] = binding.as_slice()
            && is_punct(equals, '=')
            && name == value
            && is_used(name)
        {
            output.extend(quote_spanned!(Span::mixed_site()=>
                #[allow(unused_variables, reason = "the lock uses it")]
            ));
        }
        output.extend(statement);
    }
    regrouped(body, output)
}

/// The names that the body binds by `let (a, b) = { let __arg1 = __arg1; __arg1 };`, because
/// `#[async_trait]` gives the function a parameter of that name instead of a pattern.
pub(crate) fn destructured(body: &Group) -> Vec<Ident> {
    let mut names = Vec::new();
    let mut tokens = body.stream().into_iter();
    while let Some(token) = tokens.next() {
        if is_word(&token, "let") {
            let pattern: Vec<TokenTree> = tokens
                .by_ref()
                .take_while(|token| !is_punct(token, '='))
                .collect();
            let is_param = |value| match value {
                TokenTree::Group(block) => {
                    let last = block.stream().into_iter().last();
                    last.is_some_and(|last| last.to_string().starts_with("__arg"))
                }
                _ => false,
            };
            if tokens.next().is_some_and(is_param) {
                names.extend(params::bindings(&pattern, false).0);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::future;
    use crate::written::{messages, rows};
    use proc_macro2::{TokenStream, TokenTree};

    #[test]
    fn the_function_that_async_trait_writes_is_known() {
        let output = "::core::pin::Pin<Box<dyn ::core::future::Future<Output = Done> + Send + 'a>>";
        let body = "{ Box::pin(async move { at }) }";
        for (output, body, is_one) in [
            (output, body, true),
            (output, "{ Box::pin(move { at }) }", false),
            (output, "{ Box::pin(async move (at)) }", false),
            (output, "{ pin![async move { at }] }", false),
            (output, "{ at }", false),
            ("Pin<Box<dyn 'a + Future<Output = Done>>>", body, true),
            ("Pin<Box<dyn Stream<Output = Done>>>", body, false),
            ("Pin<Box<dyn Future>>", body, false),
            ("Pin<Box<Done>>", body, false),
            ("Pin<&mut dyn Future<Output = Done>>", body, false),
            ("Arc<Box<dyn Future<Output = Done>>>", body, false),
            ("Pin<Arc<dyn Future<Output = Done>>>", body, false),
            ("Pin", body, false),
            ("Pin<'a>", body, false),
            ("(At, Done)", body, false),
        ] {
            let tokens = |text: &str| text.parse::<TokenStream>().expect("tokens");
            let Some(TokenTree::Group(body)) = tokens(body).into_iter().next() else {
                panic!("a block: {body}")
            };
            let found = future(&tokens(output), &body);
            assert_eq!(found.is_some(), is_one, "{output} {body}");
        }
    }

    #[test]
    fn a_pattern_that_the_body_binds_is_reported_only_if_the_attribute_uses_it() {
        for [args, wanted] in rows(
            r#"
            key = "<id>" => id
            key = "<id>:<to>", on_held = Ok(to) => id to
            key = 7 =>
        "#,
        ) {
            let messages = messages(&format!(
                "#[advisory_lock({args}, pool = pool, wait = \"never\")]
                 fn run<'a>(pool: &'a P, __arg1: X, __arg2: Y) -> Pin<Box<dyn Future<Output = Done> + Send + 'a>> {{
                     Box::pin(async move {{ let X(id) = {{ let __arg1 = __arg1; __arg1 }}; let (to, _) = {{ let __arg2 = __arg2; __arg2 }}; send(id, to, conn) }})
                 }}"
            ));
            let names = messages.iter().filter_map(|message| {
                let (name, reason) = message.strip_prefix('`')?.split_once('`')?;
                reason.contains("because `#[async_trait]`").then_some(name)
            });
            assert_eq!(names.collect::<Vec<_>>().join(" "), wanted, "{messages:?}");
        }
    }
}
