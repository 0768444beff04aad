iptables -I INPUT -p tcp --dport 22 -s 172.22.7.200 -j ACCEPT
iptables -I INPUT -p tcp --dport 22 -j DROP
