//! The function that the compiler sees: begin, body, finish, and no logic between them.

use crate::function::Receiver;
use crate::receiver::renamed;
use crate::site::{Connection, Site};
use advisory_pattern::{Filter, Part, Placeholder, Shape};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{GenericArgument, PathArguments, Type, spanned::Spanned};

pub(crate) fn expand(site: &Site) -> TokenStream {
    // Locals of the expansion are hygienic: a user's parameter `held` stays theirs.
    let here = Span::mixed_site();
    let krate = &site.krate;
    let private = quote_spanned!(here=> #krate::__private);
    let head = &site.function.head;
    let output = inferred(&site.function.output);
    let at_output = site.function.output.span().resolved_at(here);
    let pattern = Literal::string(&site.key.value());
    let Connected {
        take,
        owner,
        place,
        name,
        body,
    } = connected(site);
    let key = key(site, &private);
    let returns = quote_spanned!(at_output=> #private::returns::<#output>());
    let convert = quote_spanned!(at_output=> |error: #krate::Error| (&&&returns).convert(error));
    // The body's statements stand in the async block itself: a block in a block would be the user's `unused_braces`. The
    // return that never runs pins the block's type, so that a mismatch lands on the user's token.
    let body = quote_spanned!(here=>
        async {
            if false {
                return #private::never::<#output>();
            }
            #body
        }
    );
    quote_spanned! {here=>
        #head {
            let returns = #returns;
            let convert = {
                #[allow(unused_imports, reason = "which of them is used depends on the error type")]
                use #private::{ConvertBoth as _, ConvertDiesel as _, ConvertNeither as _, ConvertOwn as _};
                #convert
            };
            let mut keys = [#key];
            #take
            let mut held = match #private::begin_at(#owner, #place, #pattern, &mut keys).await {
                #private::core::result::Result::Ok(held) => held,
                #private::core::result::Result::Err(error) => return #private::core::result::Result::Err(convert(error)),
            };
            let result: #output = {
                #[allow(unused_mut, reason = "only a body that borrows it once more needs it")]
                let mut #name = held.conn();
                let result = #body.await;
                result
            };
            #private::same(&returns, &result);
            #private::finish_with(held, result, convert).await
        }
    }
}

/// How the body gets at its connection while the guard holds it.
struct Connected {
    /// Statements before the lock.
    take: TokenStream,
    /// What the guard borrows.
    owner: TokenStream,
    /// From there to the connection.
    place: TokenStream,
    /// What the body calls it.
    name: Ident,
    body: TokenStream,
}

fn connected(site: &Site) -> Connected {
    let here = Span::mixed_site();
    let krate = &site.krate;
    let body = site.function.body.stream();
    match &site.connection {
        Connection::Expression(expression) => {
            let name = Ident::new("conn", Span::call_site());
            Connected {
                take: quote_spanned!(here=> let mut taken = #expression;),
                owner: quote_spanned!(here=> &mut taken),
                place: quote_spanned!(here=> |taken| #krate::Connection::pg(taken)),
                name,
                body,
            }
        }
        Connection::Place { root, fields, by } => {
            let is_self = root == "self";
            let name = if is_self {
                Ident::new("this", here)
            } else {
                root.clone()
            };
            let (take, owner) = match by {
                Receiver::Value => (
                    quote_spanned!(here=> let mut owned = #root;),
                    quote_spanned!(here=> &mut owned),
                ),
                Receiver::MutValue => (TokenStream::new(), quote_spanned!(here=> &mut #root)),
                Receiver::Mutable | Receiver::Shared => {
                    (TokenStream::new(), quote_spanned!(here=> &mut *#root))
                }
            };
            let at = root.span().resolved_at(here);
            let place = if fields.is_empty() {
                quote_spanned!(at=> |place| #krate::Connection::pg(place))
            } else {
                quote_spanned!(at=> |place| #krate::Connection::pg(&mut place #fields))
            };
            let body = if is_self { renamed(body, &name) } else { body };
            Connected {
                take,
                owner,
                place,
                name,
                body,
            }
        }
    }
}

/// An expression that renders and hashes the key.
fn key(site: &Site, private: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let writes = site.pattern.parts.iter().map(|part| match part {
        Part::Text(text) => quote_spanned!(here=> key.text(#text);),
        Part::Placeholder(placeholder) => write(site, placeholder),
    });
    let krate = &site.krate;
    let writes = writes.collect::<TokenStream>();
    // A pattern without placeholders is a constant, hashed here.
    if site.pattern.placeholders().next().is_none() {
        let text: String = site
            .pattern
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                Part::Placeholder(_) => None,
            })
            .collect();
        let number = advisory_pattern::Derivation::Sha256.key(&text);
        return quote_spanned!(here=> #krate::Key::BigInt(#number));
    }
    quote_spanned!(here=> {
        let mut key = #private::KeyWriter::sha256();
        #writes
        key.finish()
    })
}

fn write(site: &Site, placeholder: &Placeholder) -> TokenStream {
    let krate = &site.krate;
    let at_key = site.key.span().resolved_at(Span::mixed_site());
    let shape = Ident::new(shape_name(site.shape(placeholder)), at_key);
    let mut value = TokenStream::new();
    for (index, step) in placeholder.path.iter().enumerate() {
        if index > 0 {
            quote_spanned!(at_key=> .).to_tokens(&mut value);
        }
        step_tokens(step, site.key.span()).to_tokens(&mut value);
    }
    let value = if placeholder.filters.contains(&Filter::Display) {
        quote_spanned!(at_key=> &#krate::__private::Displayed(&#value))
    } else {
        quote_spanned!(at_key=> &#value)
    };
    let filters: Vec<Ident> = placeholder
        .filters
        .iter()
        .filter_map(|filter| match filter {
            Filter::Trim => Some("Trim"),
            Filter::Lower => Some("Lower"),
            Filter::Raw => Some("Raw"),
            // The value is wrapped for it.
            Filter::Display => None,
        })
        .map(|name| Ident::new(name, at_key))
        .collect();
    if filters.is_empty() {
        quote_spanned!(at_key=> key.part::<#krate::shape::#shape, _>(#value);)
    } else {
        quote_spanned!(at_key=> key.filtered::<#krate::shape::#shape, _>(#value, &[#(#krate::__private::Filter::#filters),*]);)
    }
}

/// A name, `self`, or a tuple's index, with the user's own hygiene.
fn step_tokens(step: &str, span: Span) -> TokenStream {
    if let Ok(index) = step.parse::<usize>() {
        let mut index = Literal::usize_unsuffixed(index);
        index.set_span(span);
        return index.into_token_stream();
    }
    // `check` has made sure that it is one.
    let mut name = syn::parse_str(step).unwrap_or_else(|_| Ident::new("self", span));
    name.set_span(span);
    name.into_token_stream()
}

/// The type in `advisory_runtime::shape` of this name.
fn shape_name(shape: Shape) -> &'static str {
    match shape {
        Shape::Int => "Int",
        Shape::Uint => "Uint",
        Shape::Uuid => "Uuid",
        Shape::Date => "Date",
        Shape::Time => "Time",
        Shape::DateTime => "DateTime",
        Shape::Timestamp => "Timestamp",
        Shape::Bool => "Bool",
        Shape::Char => "Char",
        Shape::Raw => "Raw",
        _ => "Text",
    }
}

/// The type with `_` for each `impl Trait`, which cannot be written inside the body.
fn inferred(ty: &Type) -> Type {
    let mut ty = ty.clone();
    infer(&mut ty);
    ty
}

fn infer(ty: &mut Type) {
    match ty {
        Type::ImplTrait(_) => *ty = Type::Verbatim(quote_spanned!(ty.span()=> _)),
        Type::Group(group) => infer(&mut group.elem),
        Type::Paren(paren) => infer(&mut paren.elem),
        Type::Reference(reference) => infer(&mut reference.elem),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(infer),
        Type::Path(path) => {
            for segment in &mut path.path.segments {
                if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
                    for argument in &mut arguments.args {
                        if let GenericArgument::Type(ty) = argument {
                            infer(ty);
                        }
                    }
                }
            }
        }
        _ => {}
    }
}
