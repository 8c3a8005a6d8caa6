//! Encrypted connections: who shows the wrong certificate, or none, is refused with a line that says why.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use crate::harness::{Cluster, Plan, Process, run, stderr, stdout, wait_for};
use crate::resp::{Client, Value};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const TLS: &str = "[tls]\ncertificate = \"{node}.pem\"\nkey = \"{node}.key\"\nca = \"ca.pem\"\n";

const SOON: Duration = Duration::from_secs(15);

/// Certificates in the cluster's directory, a good one for each node.
fn certificates(directory: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/certificates.sh");
    let made = Command::new(script).arg(directory).output().expect("sh runs");
    let told = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "install openssl: {told}");
    for node in ["ca-1", "va-1", "ir-1"] {
        give(directory, node, "node");
    }
}

/// Gives a node a certificate.
fn give(directory: &Path, node: &str, certificate: &str) {
    for kind in ["key", "pem"] {
        // As a renewal does it: no reader sees half a file.
        let new = directory.join("new");
        std::fs::copy(directory.join(format!("{certificate}.{kind}")), &new).unwrap();
        std::fs::rename(new, directory.join(format!("{node}.{kind}"))).unwrap();
    }
}

fn prepare(more: &'static str) -> Cluster {
    Cluster::prepare(Plan { more, ..Plan::default() }, certificates)
}

/// A client with TLS that believes an authority and shows a certificate, if told so.
struct Secure<'a> {
    ca: &'a str,
    shows: Option<&'a str>,
}

const SECURE: Secure<'static> = Secure { ca: "ca", shows: None };

impl Secure<'_> {
    fn connect(
        &self,
        cluster: &Cluster,
        index: u16,
    ) -> (Client, Arc<std::sync::Mutex<Option<CertificateDer<'static>>>>) {
        let directory = cluster.directory.path();
        let file = |name: &str, kind: &str| directory.join(format!("{name}.{kind}"));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(file(self.ca, "pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match self.shows {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let chain = vec![CertificateDer::from_pem_file(file(name, "pem")).unwrap()];
                let key = PrivateKeyDer::from_pem_file(file(name, "key")).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let tcp = TcpStream::connect(("127.0.0.1", cluster.port(index))).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = StreamOwned::new(tls, tcp);
        let shown = Arc::default();
        if stream.conn.complete_io(&mut stream.sock).is_ok() {
            let certificate = stream.conn.peer_certificates().and_then(|chain| chain.first());
            *Arc::<std::sync::Mutex<_>>::clone(&shown).lock().unwrap() =
                certificate.cloned().map(CertificateDer::into_owned);
        }
        (Client::over(stream), shown)
    }

    fn client(&self, cluster: &Cluster, index: u16) -> Client {
        self.connect(cluster, index).0
    }
}

fn says(process: &Process, what: &str) {
    wait_for(&format!("it says '{what}'"), SOON, || process.said().contains(what));
}

/// How many peers a node is connected to.
fn peers(cluster: &Cluster, index: u16) -> usize {
    format!("{:?}", SECURE.client(cluster, index).call(&["MERIDIAN.STATUS"])).matches("state=up").count()
}

#[test]
fn a_cluster_with_tls_serves_clients_with_tls_and_no_others() {
    let mut cluster = prepare(TLS);
    cluster.start_nodes(0..3);
    let (mut client, mut other) = (SECURE.client(&cluster, 0), SECURE.client(&cluster, 2));
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    assert_eq!(other.call(&["GET", "k"]), Value::bulk("v"));
    // More than sockets and buffers of encryption hold, both ways, and many commands at once.
    let long = "x".repeat(6 << 20);
    assert_eq!(client.call(&["SET", "long", &long]), Value::ok());
    client.send(&b"*2\r\n$3\r\nGET\r\n$4\r\nlong\r\n".repeat(5)).unwrap();
    for _ in 0..5 {
        assert_eq!(client.read().unwrap(), Value::bulk(&long));
    }
    assert_eq!(other.call(&["GET", "long"]), Value::bulk(&long));

    let mut plain = cluster.client(0);
    let told = plain.call(&["PING"]);
    assert_eq!(told.error(), "ERR this port speaks TLS: connect with TLS (redis-cli --tls, rediss://)");
    assert!(plain.read().is_err());
    says(cluster.node(0), "refused the client at 127.0.0.1: it does not speak TLS");
    assert!(Secure { ca: "other-ca", shows: None }.client(&cluster, 0).ask(&["PING"]).is_err());
    // The port for nodes: closed to plain text, and to who shows no certificate.
    let mut stray = TcpStream::connect(("127.0.0.1", cluster.peer_port(0))).unwrap();
    std::io::Write::write_all(&mut stray, b"hello, is anybody there?").unwrap();
    let mut told = Vec::new();
    let _ = stray.read_to_end(&mut told);
    assert!(String::from_utf8_lossy(&told).contains("it does not speak TLS"), "{told:?}");
    assert_eq!(client.call(&["GET", "k"]), Value::bulk("v"), "nobody else is disturbed");
}

#[test]
fn clients_show_a_certificate_where_they_must() {
    let mut cluster = prepare(
        "[tls]\ncertificate = \"node.pem\"\nkey = \"node.key\"\nclient_ca = \"other-ca.pem\"\nfor = \"clients\"\n",
    );
    cluster.start_nodes(0..3);
    let client = |shows| Secure { ca: "ca", shows }.client(&cluster, 0).ask(&["PING"]);
    assert_eq!(client(Some("client")).unwrap(), Value::Simple("PONG".to_owned()));
    assert!(client(None).is_err() && client(Some("node")).is_err() && client(Some("expired")).is_err());
    let process = cluster.node(0);
    says(process, "refused the client at 127.0.0.1: it shows no certificate, and this node asks for one");
    says(
        process,
        "refused the client at 127.0.0.1: its certificate is signed by none that this node believes",
    );
}

/// Flags of commands that ask a cluster, with files of its directory.
fn flags(cluster: &Cluster, flags: &[(&str, &str)]) -> Vec<String> {
    let file = |name: &str| cluster.directory.path().join(name).display().to_string();
    let both = |(flag, name): &(&str, &str)| [(*flag).to_owned(), file(name)];
    std::iter::once("--tls".to_owned()).chain(flags.iter().flat_map(both)).collect()
}

#[test]
fn bench_and_status_speak_tls_and_say_whom_they_do_not_believe() {
    let mut cluster = prepare(TLS);
    cluster.start_nodes(0..3);
    let target = format!("127.0.0.1:{}", cluster.port(0));
    let history = cluster.directory.path().join("history").display().to_string();
    let bench = |flags: &[String], more: &[&str]| {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let load = ["bench", "--target", &target, "--clients", "4", "--duration", "300ms", "--warmup", "0ms"];
        run(&[&load[..], &flags, more].concat())
    };
    let status = |flags: &[String]| {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        run(&[&["status", "--target", &target], &flags[..]].concat())
    };
    let good = flags(&cluster, &[("--ca", "ca.pem")]);
    // More than one record of TLS each way, and many at once.
    let output = bench(&good, &["--value-size", "100000", "--pipeline", "8", "--history", &history]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("0 errors") && stdout(&output).contains("0 reconnects"),
        "{}",
        stdout(&output)
    );
    let judged = run(&["check", "--model", "linearizable", &history]);
    assert_eq!(judged.status.code(), Some(0), "{}", stdout(&judged));
    let output = status(&good);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let anybody = [&flags(&cluster, &[])[..], &["--insecure".to_owned()]].concat();
    assert_eq!(status(&anybody).status.code(), Some(0));

    let why = "its certificate is signed by none that is believed here: name who signs them";
    let other = flags(&cluster, &[("--ca", "other-ca.pem")]);
    let output = status(&other);
    assert!(output.status.code() == Some(1) && stdout(&output).contains(why), "{}", stdout(&output));
    let output = bench(&other, &[]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains(why), "{}", stderr(&output));
    // Who believes the system's authorities does not believe the test's.
    assert_ne!(status(&flags(&cluster, &[])).status.code(), Some(0));
    assert_ne!(status(&[]).status.code(), Some(0), "without TLS");
}

#[test]
fn bench_and_status_show_a_certificate_where_they_must() {
    let mut cluster = prepare(
        "[tls]\ncertificate = \"node.pem\"\nkey = \"node.key\"\nclient_ca = \"other-ca.pem\"\nfor = \"clients\"\n",
    );
    cluster.start_nodes(0..3);
    let target = format!("127.0.0.1:{}", cluster.port(0));
    let status = |files: &[(&str, &str)]| {
        let flags = flags(&cluster, files);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        run(&[&["status", "--target", &target], &flags[..]].concat())
    };
    let output = status(&[("--ca", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let output = status(&[("--ca", "ca.pem")]);
    assert!(
        output.status.code() == Some(1) && stdout(&output).contains("it asks for a certificate: show one"),
        "{}",
        stdout(&output)
    );
    let output = status(&[("--ca", "ca.pem"), ("--cert", "client.pem"), ("--key", "node.key")]);
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("do not belong together"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn nodes_with_bad_certificates_stay_out() {
    for (certificate, why) in [
        ("expired", "its certificate has expired: renew it"),
        ("foreign", "its certificate is signed by none that this node believes"),
        ("elsewhere", "its certificate is not for the host in its address"),
    ] {
        // The first dials the others; the last is dialled by them.
        for bad in [0, 2] {
            let mut cluster = prepare(TLS);
            give(cluster.directory.path(), &cluster.name(bad), certificate);
            let mut good: Vec<u16> = (0..3).collect();
            good.remove(usize::from(bad));
            cluster.start_nodes(good.iter().copied());
            let stranger = cluster.spawn(bad);
            for index in &good {
                says(cluster.node(*index), why);
            }
            says(
                &stranger,
                if certificate == "elsewhere" && bad == 0 { "refused this one" } else { "alert" },
            );
            assert!(good.iter().all(|index| peers(&cluster, *index) == 1), "{certificate} of node {bad}");
            assert_eq!(SECURE.client(&cluster, good[0]).call(&["SET", "k", "v"]), Value::ok());
        }
    }
}

#[test]
fn a_node_without_tls_is_told_so() {
    for bad in [0, 2] {
        let mut cluster = prepare(TLS);
        let plain = cluster.altered(TLS, "");
        let good: Vec<u16> = (0..3).filter(|index| *index != bad).collect();
        cluster.start_nodes(good.iter().copied());
        let stranger = cluster.spawn_with(bad, &plain);
        for index in good {
            says(
                cluster.node(index),
                "it does not speak TLS, and this node does: give all nodes the same [tls]",
            );
            assert_eq!(peers(&cluster, index), 1);
        }
        says(&stranger, "give all nodes the same [tls]");
    }
}

#[test]
fn certificates_are_renewed_while_a_node_runs() {
    let mut cluster = prepare(TLS);
    cluster.start_nodes(0..3);
    let directory = cluster.directory.path().to_owned();
    let file = |name: &str| CertificateDer::from_pem_file(directory.join(format!("{name}.pem"))).unwrap();
    let shown = |cluster: &Cluster| SECURE.connect(cluster, 0).1.lock().unwrap().clone();
    let mut client = SECURE.client(&cluster, 0);
    assert_eq!(shown(&cluster), Some(file("node")));
    give(&directory, "ca-1", "renewed");
    cluster.node(0).signal("HUP");
    says(cluster.node(0), "certificates were read again");
    assert_eq!(shown(&cluster), Some(file("renewed")));
    assert_eq!(client.call(&["PING"]), Value::Simple("PONG".to_owned()), "connections that stand go on");

    // What is wrong is not taken up.
    std::fs::write(directory.join("ca-1.pem"), "rubbish").unwrap();
    cluster.node(0).signal("HUP");
    says(cluster.node(0), "certificates stay as they were: ");
    assert_eq!(shown(&cluster), Some(file("renewed")));
    // It looks by itself, too.
    give(&directory, "ca-1", "node");
    wait_for("the change is noticed", SOON, || shown(&cluster) == Some(file("node")));
    cluster.kill([2]);
    cluster.start_nodes([2]);
    assert_eq!(
        SECURE.client(&cluster, 2).call(&["SET", "k", "v"]),
        Value::ok(),
        "nodes meet with it as well"
    );
}

#[test]
fn certificates_that_cannot_be_used_are_told_before_a_node_runs() {
    let cluster = prepare(TLS);
    let config = cluster.config();
    let told = |why: &str| {
        for more in [&["--check"][..], &[]] {
            let arguments = [&["serve", "--config", &config, "--node", "ca-1"], more].concat();
            let refused = run(&arguments);
            assert!(
                refused.status.code() == Some(2) && stderr(&refused).contains(why),
                "{}",
                stderr(&refused)
            );
        }
    };
    let directory = cluster.directory.path();
    std::fs::copy(directory.join("renewed.key"), directory.join("ca-1.key")).unwrap();
    told("do not belong together");
    std::fs::write(directory.join("ca-1.key"), "").unwrap();
    told("is no private key in PEM");
    std::fs::remove_file(directory.join("ca-1.pem")).unwrap();
    told("ca-1.pem");
}
