//! The definition of each service of a .proto, as `tailcut_services::service!` takes it.

use std::fmt::Write;

use prost_build::{Comments, Method, Service, ServiceGenerator};
use prost_types::method_options::IdempotencyLevel;

/// Writes definitions of services.
pub(crate) struct Definitions;

impl ServiceGenerator for Definitions {
    fn generate(&mut self, service: Service, code: &mut String) {
        write(&service, code).expect("a String takes what is written");
    }
}

fn write(service: &Service, code: &mut String) -> std::fmt::Result {
    let Service { name, package, proto_name, comments, methods, .. } = service;
    let module = module_name(name);
    let dot = if package.is_empty() { "" } else { "." };
    let fallback = format!(" The service {package}{dot}{proto_name}.");
    writeln!(
        code,
        "/// The service `{package}{dot}{proto_name}`: its trait, its server, its client."
    )?;
    writeln!(code, "pub mod {module}_service {{")?;
    writeln!(code, "::tailcut_services::service! {{")?;
    write_docs(comments, &fallback, code)?;
    writeln!(
        code,
        "service {name} = \"{package}{dot}{proto_name}\", server {name}Server, client {name}Client, \
         codec ::tailcut_services::Prost;"
    )?;
    for method in methods {
        write_method(method, code)?;
    }
    writeln!(code, "}}\n}}")?;
    writeln!(code, "/// What a server of `{name}` needs.\n#[allow(unused_imports)]")?;
    writeln!(
        code,
        "pub mod {module}_server {{ pub use super::{module}_service::{{{name}, {name}Server}}; }}"
    )?;
    writeln!(code, "/// What a client of `{name}` needs.\n#[allow(unused_imports)]")?;
    writeln!(code, "pub mod {module}_client {{ pub use super::{module}_service::{name}Client; }}")
}

fn write_method(method: &Method, code: &mut String) -> std::fmt::Result {
    let Method { name, proto_name, comments, input_type, output_type, options, .. } = method;
    let (request, reply) = (inside(input_type), inside(output_type));
    let idempotent = match options.idempotency_level() {
        IdempotencyLevel::Idempotent | IdempotencyLevel::NoSideEffects => ", idempotent",
        IdempotencyLevel::IdempotencyUnknown => "",
    };
    write_docs(comments, &format!(" The method {proto_name}."), code)?;
    writeln!(code, "{name}({request}) -> {reply} = \"{proto_name}\"{idempotent};")
}

/// A type as it is named one module further in.
fn inside(name: &str) -> String {
    let is_absolute = name.starts_with("::") || name.starts_with("crate::") || name == "()";
    if is_absolute { name.to_owned() } else { format!("super::{name}") }
}

fn write_docs(comments: &Comments, fallback: &str, code: &mut String) -> std::fmt::Result {
    if comments.leading.is_empty() {
        return writeln!(code, "#[doc = {fallback:?}]");
    }
    comments.leading.iter().try_for_each(|line| writeln!(code, "#[doc = {line:?}]"))
}

/// `HTTPGreeter2` as `http_greeter2`: a module's name.
fn module_name(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let begins_a_word = |index: usize| {
        let is_upper =
            |index: usize| letters.get(index).is_some_and(|letter| letter.is_uppercase());
        let follows_lower = !is_upper(index - 1);
        let precedes_lower = letters.get(index + 1).is_some_and(|next| next.is_lowercase());
        is_upper(index) && (follows_lower || precedes_lower) && letters[index - 1] != '_'
    };
    let mut module = String::new();
    for (index, letter) in letters.iter().enumerate() {
        if index > 0 && begins_a_word(index) {
            module.push('_');
        }
        module.extend(letter.to_lowercase());
    }
    module
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_s_name_is_the_service_s_in_words() {
        assert_eq!(module_name("Greeter"), "greeter");
        assert_eq!(module_name("KeyValueStore"), "key_value_store");
        assert_eq!(module_name("HTTPGreeter2"), "http_greeter2");
        assert_eq!(module_name("Key_Value"), "key_value");
    }

    #[test]
    fn a_type_is_named_from_inside_its_service_s_module() {
        assert_eq!(inside("HelloReply"), "super::HelloReply");
        assert_eq!(inside("super::other::Word"), "super::super::other::Word");
        assert_eq!(inside("::prost_types::Timestamp"), "::prost_types::Timestamp");
        assert_eq!(inside("()"), "()");
    }
}
