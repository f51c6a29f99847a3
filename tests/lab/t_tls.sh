# SPDX-License-Identifier: Apache-2.0
# RPC-with-TLS with the stock client: tlshd in the guest, xprtsec=tls and mtls, data striped over
# the data servers, nothing in the clear.
if [ -z "${LAB_TLSHD:-}" ]; then
	skip "no tlshd: ${LAB_TLSHD_WHY:-tools/lab-tlshd did not find one}"
	return
fi
certs=$SHARED/certs
mkdir -p "$certs"
quiet() { "$@" >>"$LAB_DIR/openssl.log" 2>&1 || not_ok "$* (openssl.log)"; }
for ca in ca other; do
	quiet openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
		-keyout "$certs/$ca.key" -out "$certs/$ca.pem" -subj "/CN=lab $ca"
done
cert() { # NAME EXTENSION...
	local name=$1
	shift
	printf '%s\n' "$@" keyUsage=digitalSignature >"$certs/$name.ext"
	quiet openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 \
		-nodes -keyout "$certs/$name.key" -out "$certs/$name.csr" -subj "/CN=$name"
	quiet openssl x509 -req -in "$certs/$name.csr" -CA "$certs/ca.pem" -CAkey "$certs/ca.key" \
		-CAcreateserial -days 30 -extfile "$certs/$name.ext" -out "$certs/$name.pem"
}
cert server subjectAltName=DNS:labhost,IP:10.77.0.1,IP:127.0.0.1 extendedKeyUsage=serverAuth
cert client extendedKeyUsage=clientAuth
tls_cluster() { # MODE
	local d set=()
	for d in mds ds; do
		set+=(--set "$d.tls=$1" --set "$d.tls_cert=$certs/server.pem" --set \
			"$d.tls_key=$certs/server.key" --set "$d.tls_ca=$certs/ca.pem")
	done
	cluster_up "${set[@]}"
}
sum() { # METRIC [LABEL=VALUE]...: over the data servers
	local d total=0
	for d in ds1 ds2 ds3 ds4; do total=$((total + $(metric "$d" "$@"))); done
	echo $total
}
tls_cluster optional
python3 "$LAB_HERE/sniff.py" labbr "$LAB_DIR/sniffed" &
sniffer=$!
sleep 0.5
guest 1 tls.sh clear "$LAB_TLSHD" "$certs"
sleep 0.3
read -r packets clear secret <"$LAB_DIR/sniffed"
check "in the clear the bytes of a file are seen on the wire" test "${clear:-0}" -gt 10000
written=$(sum weft_ds_bytes_total dir=write)
guest 1 tls.sh tls "$LAB_TLSHD" "$certs"
sleep 0.3
kill $sniffer
read -r packets clear secret <"$LAB_DIR/sniffed"
same "over TLS they are not" "$secret" 0
check "the wire was watched" test "$packets" -gt 1000
same "the data servers took what was written over TLS" \
	$(($(sum weft_ds_bytes_total dir=write) - written >= 40 << 20)) 1
for d in ds1 ds2 ds3 ds4; do
	check "$d was called over TLS" test "$(metric $d weft_rpc_tls_handshakes_total)" -ge 2
	check "$d took its share" test "$(metric $d weft_ds_op_total proc=WRITE)" -ge 8
	check "$d knew the client by its certificate" grep \
		-q 'over TLS .*certificate .* of "/CN=lab ca"' "$CLUSTER/log/$d.log"
done
same "the MDS saw no WRITE" "$(metric mds weft_mds_op_total op=WRITE)" 0
dev down >/dev/null
tls_cluster required
guest 1 tls.sh required "$LAB_TLSHD" "$certs"
