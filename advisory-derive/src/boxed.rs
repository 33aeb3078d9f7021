//! What `#[async_trait]` makes of an `async fn`: a function that returns `Box::pin(async move { … })`.
//!
//! It stands on the `impl`, so it expands before an attribute on one of its functions.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::{GenericArgument, PathArguments, Type, TypeParamBound};

/// The future's output and body, if the function is one of that form.
pub(crate) fn unboxed(output: &TokenStream, body: &Group) -> Option<(Type, Group)> {
    let Type::Path(pin) = syn::parse2(output.clone()).ok()? else {
        return None;
    };
    let Type::Path(boxed) = argument(&pin.path, "Pin")? else {
        return None;
    };
    let Type::TraitObject(object) = argument(&boxed.path, "Box")? else {
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
    Some((output, inside(body)?))
}

/// The type argument of `Pin<…>` and `Box<…>`.
fn argument<'a>(path: &'a syn::Path, name: &str) -> Option<&'a Type> {
    let last = path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// The block of `Box::pin(async move { … })`.
fn inside(body: &Group) -> Option<Group> {
    let group = |token: TokenTree, delimiter| match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    };
    let pinned = group(body.stream().into_iter().last()?, Delimiter::Parenthesis)?;
    let mut tokens = pinned.stream().into_iter();
    let is_async = matches!(tokens.next()?, TokenTree::Ident(word) if word == "async");
    let block = group(tokens.last()?, Delimiter::Brace)?;
    is_async.then_some(block)
}
