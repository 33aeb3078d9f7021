//! The annotated function: the parts of its signature that the lock needs, and its body as tokens.
//!
//! The body is never parsed, and all tokens before it are emitted unchanged. That is cheapest for a
//! crate with a thousand locked functions, and no span is lost.

pub(crate) mod async_trait;
pub(crate) mod params;

use crate::attribute::Attribute;
use crate::errors::Errors;
use crate::tokens::{is_punct, is_word, regrouped, span_of, spelled, ungrouped};
use params::{Param, Receiver};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Type, parse_quote};

pub(crate) struct Function {
    /// Attributes, visibility and signature: everything before the body.
    pub(crate) head: TokenStream,
    /// The position of the parameters in it.
    params_at: usize,
    pub(crate) name: Ident,
    pub(crate) receiver: Option<Receiver>,
    pub(crate) params: Vec<Param>,
    /// Names that only the body of `#[async_trait]`'s function binds; each was reported if it is
    /// used.
    pub(crate) destructured: Vec<Ident>,
    pub(crate) output: Type,
    pub(crate) body: Group,
    pub(crate) form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Async,
    /// `#[async_trait]` has made it a function that returns a boxed future; output and body are the
    /// future's.
    BoxedFuture,
    /// A plain `fn`, for Diesel's own connections.
    Blocking,
}

/// The function, with its mistakes reported; `None` if the item is not a function with a body.
pub(crate) fn parse(
    item: TokenStream,
    attribute: Attribute,
    errors: &mut Errors,
) -> Option<Function> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let body = match tokens.pop().map(ungrouped) {
        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
        Some(other) => {
            let wanted = format_args!(
                "{} needs a function with a body: write it in the PostgreSQL implementation, not in the trait",
                attribute.name()
            );
            return errors.refuse(other.span(), wanted);
        }
        None => {
            return errors.refuse(Span::call_site(), expected_function(attribute));
        }
    };
    let head: TokenStream = tokens.iter().cloned().collect();
    let signature = Signature::parse(tokens, attribute, errors)?;
    let name = signature.name;
    let future = async_trait::future(&signature.output, &body).filter(|_| !signature.is_async);
    let (output, body, form) = match future {
        Some((output, body)) => (output, body, Form::BoxedFuture),
        None if signature.is_async => {
            let output = output(signature.output, &name, attribute, errors);
            (output, body, Form::Async)
        }
        None if is_run_by_tokio(&body) => {
            let wanted = format_args!(
                "an attribute such as `#[tokio::test]` or `#[tokio::main]` has already made `{name}` a plain `fn`: write {} above it",
                attribute.name()
            );
            return errors.refuse(name.span(), wanted);
        }
        None if ["Future", "BoxFuture"]
            .iter()
            .any(|name| mentions(&signature.output, name)) =>
        {
            let wanted = format_args!("`{name}` returns a future: write `async fn {name}`");
            errors.at(name.span(), wanted);
            (parse_quote!(()), body, Form::Blocking)
        }
        None => {
            let output = output(signature.output, &name, attribute, errors);
            (output, body, Form::Blocking)
        }
    };
    let (receiver, params) = params::parse(signature.params);
    Some(Function {
        head,
        params_at: signature.params_at,
        name,
        receiver,
        params,
        destructured: Vec::new(),
        output,
        body,
        form,
    })
}

struct Signature {
    is_async: bool,
    name: Ident,
    params_at: usize,
    params: TokenStream,
    output: TokenStream,
}

impl Signature {
    fn parse(
        mut tokens: Vec<TokenTree>,
        attribute: Attribute,
        errors: &mut Errors,
    ) -> Option<Self> {
        let Some(keyword) = tokens.iter().position(|token| is_word(token, "fn")) else {
            return errors.refuse(span_of(tokens.first()), not_a_function(&tokens, attribute));
        };
        let before = |word| tokens[..keyword].iter().find(|token| is_word(token, word));
        let is_async = before("async").is_some();
        if let Some(constant) = before("const") {
            let wanted = format_args!(
                "a `const fn` cannot take a {}: write `fn` or `async fn`",
                attribute.noun()
            );
            errors.at(constant.span(), wanted);
        }
        let mut rest = tokens.split_off(keyword).into_iter().skip(1);
        let name = match rest.next() {
            Some(TokenTree::Ident(name)) => name,
            other => {
                return errors.refuse(span_of(other.as_ref()), expected_function(attribute));
            }
        };
        let mut rest: Vec<TokenTree> = rest.collect();
        let params = params::position(&rest);
        let after = params.map(|params| rest.split_off(params + 1));
        let (Some(params), Some(TokenTree::Group(list)), Some(after)) = (params, rest.pop(), after)
        else {
            return errors.refuse(name.span(), expected_function(attribute));
        };
        Some(Self {
            is_async,
            name,
            // After `fn` and the name.
            params_at: keyword + 2 + params,
            params: list.stream(),
            output: written_output(after),
        })
    }
}

fn expected_function(attribute: Attribute) -> String {
    format!("expected a function: {} needs `fn`", attribute.name())
}

fn not_a_function(tokens: &[TokenTree], attribute: Attribute) -> String {
    let expected = expected_function(attribute);
    let has = |word: &str| tokens.iter().any(|token| is_word(token, word));
    if has("impl") {
        format!(
            "{expected}; write it on each method that needs the {}",
            attribute.noun()
        )
    } else if has("struct") {
        format!("{expected}; to declare a lock as a type, write `#[derive(LockKey)]`")
    } else {
        expected
    }
}

/// Returns whether a body is what `#[tokio::main]` and `#[tokio::test]` make of an `async fn`'s:
/// `let body = async { … }; … tokio::runtime::Builder … .block_on(body)`.
fn is_run_by_tokio(body: &Group) -> bool {
    let body = body.stream();
    let start = body.clone().into_iter().take(4);
    let start: Vec<String> = start.map(|token| token.to_string()).collect();
    start == ["let", "body", "=", "async"]
        && mentions(&body, "Builder")
        && mentions(&body, "block_on")
}

fn written_output(tokens: Vec<TokenTree>) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    if !tokens.peek().is_some_and(|token| is_punct(token, '-')) {
        return TokenStream::new();
    }
    tokens
        .skip(2)
        .take_while(|token| !is_word(token, "where"))
        .collect()
}

/// The return type; one that cannot be a `Result` is reported.
fn output(written: TokenStream, name: &Ident, attribute: Attribute, errors: &mut Errors) -> Type {
    let unit = parse_quote!(());
    let (span, instead) = if written.is_empty() {
        (name.span(), "QueryResult<()>".to_owned())
    } else {
        let ty = match syn::parse2(written) {
            Ok(ty) => ty,
            Err(error) => {
                errors.push(error);
                return unit;
            }
        };
        if !cannot_be_result(&ty) {
            return ty;
        }
        let of = spelled(&ty.to_token_stream());
        let instead = match ungrouped_type(&ty) {
            // An `impl IntoResponse`: no framework makes a response of a `QueryResult`.
            Type::ImplTrait(_) => format!("Result<{of}, AppError>"),
            _ => format!("QueryResult<{of}>"),
        };
        (ty.span(), instead)
    };
    let wanted = format_args!(
        "a locked function must return a `Result`, because acquiring the {} can fail: write `-> {instead}`, or a `Result` with your own \
         error type",
        attribute.noun()
    );
    errors.at(span, wanted);
    unit
}

/// The type in the groups that `macro_rules!` leaves around it.
fn ungrouped_type(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => ungrouped_type(&group.elem),
        ty => ty,
    }
}

/// Returns whether a type is certainly not a `Result`, nor an alias of one. For other types the
/// compiler has a more detailed error.
fn cannot_be_result(ty: &Type) -> bool {
    match ungrouped_type(ty) {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            name.starts_with(char::is_lowercase)
                || matches!(name.as_str(), "Option" | "String" | "Vec" | "Box")
        }),
        Type::Tuple(_)
        | Type::Reference(_)
        | Type::Array(_)
        | Type::ImplTrait(_)
        | Type::Never(_) => true,
        _ => false,
    }
}

impl Function {
    /// Prepares the parameters of `#[async_trait]`'s function that the lock uses: the body can
    /// leave them unused, and a pattern among them is reported.
    pub(crate) fn use_params(&mut self, is_used: impl Fn(&Ident) -> bool, errors: &mut Errors) {
        if self.form != Form::BoxedFuture {
            return;
        }
        for name in async_trait::destructured(&self.body) {
            if is_used(&name) || name == "conn" {
                let wanted = format_args!(
                    "`{name}` is not a parameter, because `#[async_trait]` moves patterns into the body: name the parameter, such as \
                     `arg`, write `arg.{name}` where the attribute uses `{name}`, and destructure `arg` in the body"
                );
                errors.at(name.span(), wanted);
            }
            self.destructured.push(name);
        }
        self.body = async_trait::allow_unused(&self.body, is_used);
    }

    /// The head, with a `self` that is taken by value declared `mut`.
    pub(crate) fn head_with_mut_self(&self) -> TokenStream {
        let mut head: Vec<TokenTree> = self.head.clone().into_iter().collect();
        if let Some(TokenTree::Group(params)) = head.get_mut(self.params_at) {
            let mut tokens: Vec<TokenTree> = params.stream().into_iter().collect();
            if let Some(receiver) = tokens.iter().position(|token| is_word(token, "self")) {
                let word = Ident::new("mut", Span::mixed_site());
                tokens.insert(receiver, word.into());
            }
            *params = regrouped(params, tokens.into_iter().collect());
        }
        head.into_iter().collect()
    }

    pub(crate) fn has_param(&self, name: &str) -> bool {
        let mut names = self.params.iter().flat_map(|param| &param.names);
        names.any(|bound| bound == name)
    }

    pub(crate) fn pool_example(&self) -> &'static str {
        if self.receiver.is_some() {
            "self.pool"
        } else {
            "pool"
        }
    }

    pub(crate) fn is_blocking(&self) -> bool {
        self.form == Form::Blocking
    }

    /// The position at which the body first binds another value by `let name = …;` at its top: not
    /// `let name = &mut *name;`.
    pub(crate) fn shadows(&self, name: &str) -> Option<Span> {
        let mut tokens = self.body.stream().into_iter().peekable();
        while let Some(token) = tokens.next() {
            if !is_word(&token, "let") {
                continue;
            }
            tokens.next_if(|token| is_word(token, "mut"));
            let Some(bound) = tokens.next_if(|token| is_word(token, name)) else {
                continue;
            };
            let value: TokenStream = tokens
                .by_ref()
                .take_while(|token| !is_punct(token, ';'))
                .collect();
            return (!mentions(&value, name)).then(|| bound.span());
        }
        None
    }
}

pub(crate) fn mentions(tokens: &TokenStream, name: &str) -> bool {
    word(tokens.clone(), name).is_some()
}

/// The first token that is this word, with its hygiene.
pub(crate) fn word(tokens: TokenStream, wanted: &str) -> Option<Ident> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => word(group.stream(), wanted),
        TokenTree::Ident(found) if found == wanted => Some(found),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::{cannot_be_result, parse};
    use crate::attribute::Attribute;
    use crate::errors::Errors;
    use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

    #[test]
    fn the_function_that_tokio_writes_is_known() {
        for (body, is_one) in [
            (
                "let body = async { send() }; return tokio::runtime::Builder::new_current_thread().build().block_on(body);",
                true,
            ),
            (
                "let body = read(); Builder::new().block_on(async { send(body) })",
                false,
            ),
            ("runtime.block_on(async { send() })", false),
            ("let body = read(); send(body)", false),
        ] {
            let item = format!("fn run(conn: &mut C) -> Done {{ {body} }}");
            let mut errors = Errors::default();
            parse(item.parse().expect("tokens"), Attribute::Lock, &mut errors);
            assert_eq!(!errors.is_empty(), is_one, "{body}");
        }
    }

    #[test]
    fn a_type_is_known_not_to_be_a_result() {
        for (written, cannot) in [
            ("u64", true),
            ("Option<Done>", true),
            ("std::string::String", true),
            ("(At, Done)", true),
            ("&Done", true),
            ("[Done; 2]", true),
            ("impl Sized", true),
            ("!", true),
            ("Done", false),
            ("io::Result<Done>", false),
            ("dyn Done", false),
        ] {
            let tokens: TokenStream = written.parse().expect("tokens");
            // The form in which a `macro_rules` macro passes it on.
            let group = TokenTree::Group(Group::new(Delimiter::None, tokens.clone()));
            for tokens in [tokens, group.into()] {
                let ty = syn::parse2(tokens).expect("a type");
                assert_eq!(cannot_be_result(&ty), cannot, "{written}");
            }
        }
    }
}
