//! Who may come in: `[[user]]` and `[security]`.

use super::reader::{Faults, Section, string};
use super::sections::name;
use super::{KeyspaceConfig, NodeConfig, TlsConfig, UserConfig};
use crate::acl::{Users, hash_password, hexadecimal};
use std::net::IpAddr;
use std::path::Path;
use toml::de::DeValue;

/// Users, each with its rules; what is wrong with a rule is found here, not when the node starts.
pub(super) fn read_users(
    sections: Vec<Section<'_, '_>>,
    keyspaces: &[KeyspaceConfig],
    directory: &Path,
    faults: &mut Faults<'_>,
) -> Vec<UserConfig> {
    let mut users: Vec<UserConfig> = Vec::new();
    for mut section in sections {
        let at = section.at;
        let user = section.required(faults, "name", name);
        let rules = section.optional(faults, "rules", rules);
        let password = section.optional(faults, "password_file", string);
        section.finish(faults, "name, rules and password_file");
        let mut hashes = Vec::new();
        if let Some(file) = password {
            match read_password(&directory.join(&file.value)) {
                Ok(hash) => hashes.push(hash),
                Err(why) => faults.add(file.at, format!("password_file: {why}")),
            }
        }
        let Some(user) = user else { continue };
        if users.iter().any(|other| other.name == user.value) {
            faults.add(user.at, format!("there are two users called '{}'", user.value));
        }
        let (at, said) = rules.map_or((at, Vec::new()), |rules| (rules.at, rules.value));
        let rules = said.into_iter().chain(hashes).collect();
        let user = UserConfig { name: user.value, rules };
        if let Err(why) = Users::new(names(keyspaces)).configure([user.named()]) {
            faults.add(at, format!("rules: {}", why.1));
        }
        users.push(user);
    }
    users
}

/// The keyspaces as rules name them.
fn names(keyspaces: &[KeyspaceConfig]) -> Vec<(u16, String)> {
    keyspaces.iter().map(|keyspace| (keyspace.number, keyspace.name.clone())).collect()
}

/// Rules, of which no password is kept but its hash.
fn rules(value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let hashed = |rule: &str| match rule.strip_prefix('>') {
        Some(password) => format!("#{}", hexadecimal(&hash_password(password.as_bytes()))),
        None => rule.to_owned(),
    };
    Ok(string(value)?.split_whitespace().map(hashed).collect())
}

/// The rule for the password in a file: its first line, or the hash that stands there.
fn read_password(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Err(format!("{} is empty: write a password, or # and its SHA-256", path.display()));
    }
    match line.strip_prefix(b"#") {
        Some(hash) if hash.len() == 64 => Ok(format!("#{}", String::from_utf8_lossy(hash))),
        _ => Ok(format!("#{}", hexadecimal(&hash_password(line)))),
    }
}

/// Whether an address of the file is reached from this machine only.
pub fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// `[security]`: whether what anybody could use is refused.
pub(super) fn read_security(mut section: Section<'_, '_>, faults: &mut Faults<'_>) -> bool {
    let yes = |value: &DeValue<'_>| value.as_bool().ok_or_else(|| "must be true or false".to_owned());
    let protected = section.optional(faults, "protected", yes);
    section.finish(faults, "protected");
    protected.is_none_or(|protected| protected.value)
}

/// `[tls]`, if there is one.
pub(super) fn read_tls(
    root: &mut Section<'_, '_>,
    directory: &Path,
    faults: &mut Faults<'_>,
) -> Option<TlsConfig> {
    let mut section = root.optional_table(faults, "tls")?;
    let at = section.at;
    let path = |value: &DeValue<'_>| Ok(directory.join(string(value)?));
    let certificate = section.required(faults, "certificate", path);
    let key = section.required(faults, "key", path);
    let ca = section.optional(faults, "ca", path);
    let client_ca = section.optional(faults, "client_ca", path);
    let whose = section.optional(faults, "for", |value| match string(value)?.as_str() {
        "all" => Ok((true, true)),
        "clients" => Ok((true, false)),
        "nodes" => Ok((false, true)),
        other => Err(format!("'{other}' is none: choose all, clients or nodes")),
    });
    section.finish(faults, "certificate, key, ca, client_ca and for");
    let (clients, nodes) = whose.map_or((true, true), |whose| whose.value);
    if nodes && ca.is_none() {
        faults.add(
            at,
            "[tls] has no 'ca', who signs the nodes' certificates: name it, or say for = \"clients\"",
        );
    }
    if let Some(client_ca) = client_ca.as_ref().filter(|_| !clients) {
        faults.add(client_ca.at, "client_ca: clients do not speak TLS with for = \"nodes\"");
    }
    let (ca, client_ca) = (ca.map(|ca| ca.value), client_ca.map(|ca| ca.value));
    Some(TlsConfig { certificate: certificate?.value, key: key?.value, ca, client_ca, clients, nodes })
}

/// Why a node would be open to whoever reaches it, if it would.
pub(crate) fn exposed(node: &NodeConfig, config: &super::Config, nodes_are_known: bool) -> Option<String> {
    const WAY_OUT: &str = "or say [security] protected = false if the network lets in only whom you trust";
    let mut by_rules = Users::new(names(&config.keyspaces));
    let default = config.users.iter().filter(|user| user.name == "default").map(UserConfig::named);
    if let Err((_, why)) = by_rules.configure(default) {
        return Some(format!("what the user 'default' may do is not understood: {why}"));
    }
    if by_rules.default_user().rights().is_open() && !is_local(&node.client) {
        return Some(format!(
            "whoever reaches {} could use every keyspace: give the user 'default' a password in a [[user]], {WAY_OUT}",
            node.client
        ));
    }
    (!nodes_are_known && !is_local(&node.peer)).then(|| {
        format!("whoever reaches {} could pose as a node: set [cluster] secret_file, {WAY_OUT}", node.peer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::handshake::tests::config;
    use meridian_protocol::topology::Region;

    const BASE: &str = "[cluster]\nid = \"t\"\n[durability]\nmode = \"memory\"\n[[node]]\nname = \"a\"\nregion = \"a\"\n\
                        client = 1\npeer = 2\n[[keyspace]]\nnumber = 3\nname = \"feed\"\nmodel = \"causal\"\n";

    fn parse(more: &str) -> Result<Config, String> {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in
            [("good", "pass word\n"), ("hash", &format!("#{}", "0a".repeat(32))), ("empty", "\n")]
        {
            std::fs::write(directory.path().join(file), text).unwrap();
        }
        Config::parse(&format!("{BASE}{more}"), directory.path()).map_err(|faults| faults[0].to_string())
    }

    #[test]
    fn users_are_read_without_their_passwords() {
        let config = parse(
            "[[user]]\nname = \"ann\"\nrules = \"on >hunter2 +@all ~* use=feed\"\n\
             [[user]]\nname = \"bob\"\nrules = \"on\"\npassword_file = \"good\"\n\
             [[user]]\nname = \"cid\"\npassword_file = \"hash\"\n",
        )
        .unwrap();
        assert!(!format!("{config:?}").contains("hunter2") && !format!("{config:?}").contains("pass word"));
        let mut users = Users::new(names(&config.keyspaces));
        users.configure(config.users.iter().map(UserConfig::named)).unwrap();
        assert!(users.authenticate(b"ann", b"hunter2").is_some_and(|ann| ann.rights().start() == Some(0)));
        assert!(users.authenticate(b"bob", b"pass word").is_some());
        assert_eq!(config.users[2].rules, [format!("#{}", "0a".repeat(32))]);
        assert_eq!(config.hash(), parse("").unwrap().hash(), "nodes may have users of their own");
    }

    #[test]
    fn what_is_wrong_with_a_user_is_told_with_its_line() {
        for (more, why) in [
            (
                "name = \"ann\"\nrules = \"on +nosuch\"",
                "line 16: rules: Error in ACL SETUSER modifier '+nosuch'",
            ),
            ("name = \"ann\"\nrules = \"use=nowhere\"", "there are feed"),
            ("rules = \"on\"", "line 14: [[user]] has no 'name'"),
            ("name = \"ann\"\npassword_file = \"none\"", "line 16: password_file: cannot read"),
            ("name = \"ann\"\npassword_file = \"empty\"", "is empty: write a password"),
            ("name = \"ann\"\n[[user]]\nname = \"ann\"", "there are two users called 'ann'"),
            (
                "name = \"ann\"\npassword = \"x\"",
                "has no setting 'password': it has name, rules and password_file",
            ),
        ] {
            let told = parse(&format!("[[user]]\n{more}\n")).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        assert!(parse("[security]\nprotected = \"no\"\n").unwrap_err().contains("must be true or false"));
        assert!(parse("").unwrap().protected && !parse("[security]\nprotected = false\n").unwrap().protected);
    }

    #[test]
    fn tls_is_for_clients_for_nodes_or_for_both() {
        let files = "[tls]\ncertificate = \"{node}.pem\"\nkey = \"k\"\n";
        let all = parse(&format!("{files}ca = \"ca\"\n")).unwrap().tls.unwrap();
        assert!(all.clients && all.nodes && all.client_ca.is_none());
        assert!(all.of_node("ca-1").certificate.ends_with("ca-1.pem"));
        let clients = parse(&format!("{files}for = \"clients\"\n")).unwrap().tls.unwrap();
        assert!(clients.clients && !clients.nodes);
        for (more, why) in [
            ("", "line 14: [tls] has no 'ca', who signs the nodes' certificates"),
            ("ca = \"a\"\nfor = \"me\"", "line 18: for: 'me' is none: choose all, clients or nodes"),
            (
                "ca = \"a\"\nclient_ca = \"b\"\nfor = \"nodes\"",
                "line 18: client_ca: clients do not speak TLS",
            ),
        ] {
            let told = parse(&format!("{files}{more}\n")).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        assert!(parse("[tls]\nkey = \"k\"\n").unwrap_err().contains("has no 'certificate'"));
        assert_eq!(parse("").unwrap().tls, None);
    }

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        for local in ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1"] {
            assert!(is_local(local), "{local}");
        }
        for public in
            ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.0.0.1.example.com:1", "localhost.example:1", "db:1"]
        {
            assert!(!is_local(public), "{public}");
        }
    }

    #[test]
    fn what_anybody_could_use_is_exposed() {
        let mut node = config().nodes[0].clone();
        node.region = Region(0);
        let user = |rules: &str| UserConfig {
            name: "default".to_owned(),
            rules: rules.split(' ').map(str::to_owned).collect(),
        };
        let exposed = |node: &NodeConfig, users: &[UserConfig], nodes_are_known| {
            super::exposed(node, &Config { users: users.to_vec(), ..config() }, nodes_are_known)
        };
        assert_eq!(exposed(&node, &[], false), None, "all of it is local");
        node.client = "0.0.0.0:7001".to_owned();
        let told = exposed(&node, &[], false).unwrap();
        assert!(told.contains("whoever reaches 0.0.0.0:7001 could use every keyspace"), "{told}");
        assert!(exposed(&node, &[user("on nopass +@all ~*")], false).is_some());
        let own = format!("on >secret +@all ~* use={0} db={0}", config().keyspaces[0].name);
        for closed in ["on >secret +@all ~*", "off", "on", &own] {
            assert_eq!(exposed(&node, &[user(closed)], false), None, "{closed}");
        }
        node.peer = "10.0.0.1:7101".to_owned();
        let told = exposed(&node, &[user("off")], false).unwrap();
        assert!(told.contains("could pose as a node: set [cluster] secret_file"), "{told}");
        assert_eq!(exposed(&node, &[user("off")], true), None);
    }
}
