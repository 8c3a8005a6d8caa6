#!/bin/sh
# Makes the certificates of tests in a directory: two authorities, and what they have signed. Needs openssl.
set -eu
cd "$1"
FROM=20200101000000Z
UNTIL=21260101000000Z

key() {
    openssl ecparam -genkey -name prime256v1 -noout | openssl pkcs8 -topk8 -nocrypt -out "$1"
}

authority() {
    key "$1.key"
    openssl req -x509 -new -key "$1.key" -subj "/CN=test $1" -days 3650 -out "$1.pem"
    : > "$1.index"
    echo 1000 > "$1.serial"
}

# name, authority, alternative names, until
certificate() {
    key "$1.key"
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    cat > "$1.cnf" <<EOF
[ca]
default_ca = signing
[signing]
database = $2.index
serial = $2.serial
new_certs_dir = .
default_md = sha256
policy = names
x509_extensions = extensions
unique_subject = no
[names]
commonName = supplied
[extensions]
basicConstraints = CA:FALSE
subjectAltName = $3
EOF
    openssl ca -batch -notext -config "$1.cnf" -cert "$2.pem" -keyfile "$2.key" \
        -startdate "$FROM" -enddate "$4" -in "$1.csr" -out "$1.pem" 2> "$1.log" || { cat "$1.log" >&2; exit 1; }
}

authority ca
authority other-ca
certificate node ca IP:127.0.0.1,DNS:localhost "$UNTIL"
certificate renewed ca IP:127.0.0.1,DNS:localhost "$UNTIL"
certificate elsewhere ca DNS:elsewhere.example "$UNTIL"
certificate expired ca IP:127.0.0.1,DNS:localhost 20210101000000Z
certificate foreign other-ca IP:127.0.0.1,DNS:localhost "$UNTIL"
certificate client other-ca DNS:client "$UNTIL"
